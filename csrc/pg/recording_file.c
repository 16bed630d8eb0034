/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/recording_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

/* A dead rank's recording is left to those who ask why it died. */
#define KEEP_SECONDS 600

static bool
put_path(char path[PATH_MAX], const char *base, const char *end)
{
    int size = base == NULL || base[0] != '/'
                   ? -1
                   : snprintf(path, PATH_MAX, "%s%s", base, end);

    return size >= 0 && size < PATH_MAX;
}

bool
dl_recording_folder(int number, char path[PATH_MAX])
{
    const char *chosen = getenv("DISTLITE_RUNTIME_DIR");
    char own[32];

    snprintf(own, sizeof own, "/distlite-%u", (unsigned)geteuid());
    if (chosen != NULL && chosen[0] != '\0') {
        return number == 0 && put_path(path, chosen, "");
    }
    switch (number) {
    case 0:
        return put_path(path, "/dev/shm", own);
    case 1:
        return put_path(path, "/tmp", own);
    case 2:
        return put_path(path, getenv("XDG_RUNTIME_DIR"), "/distlite");
    default:
        return false;
    }
}

/* Others may have put something in its place where all may write: it has to be a real
 * folder, ours, and closed to others; EPERM if it is not. */
static int
open_folder(const char *path)
{
    struct stat found;

    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return -1;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0
        && (fstat(fd, &found) < 0 || found.st_uid != geteuid()
            || (found.st_mode & 077) != 0)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

/* Field 22 of stat(5); the second, the name, may hold anything but ends with the last
 * parenthesis.  0: there is no such process. */
static uint64_t
start_of(long pid)
{
    char path[64];
    char text[1024];
    unsigned long long start = 0;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size < 0 ? 0 : size] = '\0';
    const char *next = strrchr(text, ')');
    for (int field = 2; next != NULL && field < 22; field++) {
        next = strchr(next + 1, ' ');
    }
    return next != NULL && sscanf(next, " %llu", &start) == 1 ? start : 0;
}

void
dl_recording_identify(dl_recording_header *header)
{
    struct stat space;

    header->pid = getpid();
    header->process_start = start_of(getpid());
    header->pid_namespace =
        stat("/proc/self/ns/pid", &space) == 0 ? (uint64_t)space.st_ino : 0;
    gethostname(header->host, sizeof header->host - 1);
}

static bool
is_dead(const char *name, uint64_t pid_namespace)
{
    uint64_t space, start;
    long pid;

    return sscanf(name, "%" SCNu64 "-%ld-%" SCNu64, &space, &pid, &start) == 3
           && space == pid_namespace && start_of(pid) != start;
}

static void
sweep(int folder, uint64_t pid_namespace)
{
    int fd = dup(folder);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    struct stat found;

    if (list == NULL) {
        close(fd);
        return;
    }
    while ((entry = readdir(list)) != NULL) {
        if (is_dead(entry->d_name, pid_namespace)
            && fstatat(folder, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0
            && time(NULL) - found.st_mtime > KEEP_SECONDS) {
            unlinkat(folder, entry->d_name, 0);
        }
    }
    closedir(list);
}

/* All of it is reserved now: a full file system fails here, and not as a bus error in the
 * middle of an operation. */
static void *
map_file(int folder, const char *name, size_t size)
{
    void *memory = MAP_FAILED;

    /* What is there already is of this very process, before an exec(3). */
    unlinkat(folder, name, 0);
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return NULL;
    }
    errno = posix_fallocate(fd, 0, (off_t)size);
    if (errno == 0) {
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (memory == MAP_FAILED) {
        unlinkat(folder, name, 0);
        return NULL;
    }
    return memory;
}

static void *
create_in(const char *place, const char *name, size_t size, uint64_t pid_namespace)
{
    int folder = open_folder(place);

    if (folder < 0) {
        return NULL;
    }
    sweep(folder, pid_namespace);
    void *memory = map_file(folder, name, size);
    close(folder);
    return memory;
}

/* Readers look nowhere else, so that the ranks would be missed without a word. */
static void
warn_of_chosen_folder(int error)
{
    const char *chosen = getenv("DISTLITE_RUNTIME_DIR");

    if (chosen != NULL && chosen[0] != '\0') {
        dl_log(DL_LOG_WARNING,
               "nothing is recorded for `distlite ps` in DISTLITE_RUNTIME_DIR=%s: %s",
               chosen,
               error == EPERM    ? "the folder has to be this user's, and of mode 0700"
               : error == EINVAL ? "it has to be an absolute path"
                                 : strerror(error));
    }
}

void *
dl_recording_create(const dl_recording_header *header, size_t size, char path[PATH_MAX])
{
    char name[96];
    int error = EINVAL;

    snprintf(name, sizeof name, "%" PRIu64 "-%" PRId64 "-%" PRIu64,
             header->pid_namespace, header->pid, header->process_start);
    for (int i = 0; i < 3; i++) {
        if (!dl_recording_folder(i, path)
            || strlen(path) + strlen(name) + 2 > PATH_MAX) {
            continue;
        }
        void *memory = create_in(path, name, size, header->pid_namespace);
        if (memory != NULL) {
            strcat(strcat(path, "/"), name);
            return memory;
        }
        error = errno;
    }
    warn_of_chosen_folder(error);
    path[0] = '\0';
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}
