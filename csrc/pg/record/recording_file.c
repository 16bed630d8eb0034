/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/recording_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "base/thread.h"

#define NAME_SIZE 96 /* of a file or folder */
#define FOLDERS 2    /* that recordings may be in */

#define CLAIM_FILE "claim"
#define CLAIM_SIZE 4096

/* Attempts, a millisecond apart, for a folder that is being removed while this process
 * wants to join it.  The remover holds the lock for as long as unlinking takes, unless
 * it is stopped meanwhile: then the process goes on without a lock, and at worst its
 * recording is not found. */
#define LOCK_TRIES 100

/* The time that a new job spends on removing the folders that dead jobs have left. */
#define SWEEP_LIMIT (5 * DL_MILLISECOND)

/* Used by a process that has no folder, and is therefore alone. */
static _Atomic int64_t own_claim;

static bool
is_prefix(const char *prefix, const char *name)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Returns true if a file or folder of this name may be a job's. */
static bool
is_folder_name(const char *name)
{
    return is_prefix("job-", name) || is_prefix("process-", name);
}

static bool
lock_shared(int fd)
{
    struct timespec pause = {.tv_nsec = DL_MILLISECOND};

    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
            return true;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}

static bool
is_still_there(int fd, const char *path)
{
    struct stat opened;
    struct stat found;

    return fstat(fd, &opened) == 0 && lstat(path, &found) == 0
           && opened.st_ino == found.st_ino && opened.st_dev == found.st_dev;
}

/* Returns a locked descriptor of the folder, or -1 with errno set.  The loop is for a
 * folder that is removed between opening and locking it. */
static int
open_locked(const char *path, bool *is_new)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        bool made = mkdir(path, 0700) == 0;
        if (!made && errno != EEXIST) {
            return -1;
        }
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno != ENOENT) {
            return -1;
        }
        if (fd < 0) {
            continue;
        }
        lock_shared(fd);
        if (is_still_there(fd, path)) {
            *is_new = made;
            return fd;
        }
        close(fd);
    }
    errno = EAGAIN;
    return -1;
}

/* Maps the shared words.  The page is reserved now, since a full file system must not
 * become a bus error later. */
static _Atomic int64_t *
map_claim(int folder)
{
    void *memory = MAP_FAILED;
    int fd =
        openat(folder, CLAIM_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0) {
        return NULL;
    }
    if (posix_fallocate(fd, 0, CLAIM_SIZE) == 0) {
        memory = mmap(NULL, CLAIM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

bool
dl_job_folder_enter(dl_job_folder *self, const char *runtime, const char *name)
{
    dl_job_folder entered = {0};
    int size = snprintf(entered.path, sizeof entered.path, "%s/%s", runtime, name);

    if (size < 0 || (size_t)size >= sizeof entered.path) {
        errno = ENAMETOOLONG;
        return false;
    }
    entered.fd = open_locked(entered.path, &entered.is_new);
    if (entered.fd < 0) {
        return false;
    }
    dl_fork_guard(entered.fd);
    *self = entered;
    return true;
}

static void
remove_files(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (list == NULL) {
        close(fd);
        return;
    }
    while ((entry = readdir(list)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(folder, entry->d_name, 0);
        }
    }
    closedir(list);
}

/* Converting a shared lock drops it first, so of several processes that leave at once
 * the last one to try succeeds. */
static void
remove_if_dead(int folder, const char *path)
{
    if (flock(folder, LOCK_EX | LOCK_NB) == 0 && is_still_there(folder, path)) {
        remove_files(folder);
        rmdir(path);
    }
}

void
dl_job_folder_leave(dl_job_folder *self)
{
    if (self->path[0] == '\0') {
        return;
    }
    remove_if_dead(self->fd, self->path);
    dl_fork_release(self->fd);
    close(self->fd);
    if (self->claimed != NULL) {
        munmap((void *)self->claimed, CLAIM_SIZE);
    }
    *self = (dl_job_folder){0};
}

static void
sweep_one(const char *runtime, const char *name)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof path, "%s/%s", runtime, name);

    if (size < 0 || (size_t)size >= sizeof path) {
        return;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        remove_if_dead(fd, path);
        close(fd);
    }
}

/* Removes the folders of dead jobs, as many as it can by the deadline. */
static void
sweep_folders(const char *runtime, dl_deadline deadline)
{
    DIR *list = opendir(runtime);
    struct dirent *entry;

    if (list == NULL) {
        return;
    }
    while ((entry = readdir(list)) != NULL && !dl_deadline_passed(deadline)) {
        if (is_folder_name(entry->d_name)) {
            sweep_one(runtime, entry->d_name);
        }
    }
    closedir(list);
}

bool
dl_recording_folder(int number, char path[PATH_MAX])
{
    static const char *const bases[FOLDERS] = {"/dev/shm", "/tmp"};
    const char *chosen = getenv("DISTLITE_RUNTIME_DIR");

    if (number >= FOLDERS) {
        return false;
    }
    if (chosen == NULL || chosen[0] == '\0') {
        snprintf(path, PATH_MAX, "%s/distlite-%u", bases[number], (unsigned)geteuid());
        return true;
    }
    int size = snprintf(path, PATH_MAX, "%s", chosen);
    return number == 0 && chosen[0] == '/' && size < PATH_MAX;
}

/* Opens a runtime folder, which is made if necessary.  In a folder that everybody may
 * write to, others may have put something in its place: it must be a real folder, owned
 * by this user and closed to others.  Fails with EPERM if it is not. */
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

/* Returns the start time of a process, field 22 of /proc/<pid>/stat, or 0 if
 * there is no such process.  Field 2, the name, may hold anything but ends with
 * the last parenthesis. */
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

/* Maps a new file.  All of it is reserved now, so that a full file system fails here
 * and not as a bus error in the middle of an operation. */
static void *
map_file(int folder, const char *name, size_t size)
{
    void *memory = MAP_FAILED;

    /* An existing file is of this very process, before an exec(3). */
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

static void
put_file_name(char name[NAME_SIZE], const dl_recording_header *header)
{
    snprintf(name, NAME_SIZE, "%" PRIu64 "-%" PRId64 "-%" PRIu64, header->pid_namespace,
             header->pid, header->process_start);
}

static bool
is_recording_name(const char *name)
{
    uint64_t space, start;
    long pid;

    return sscanf(name, "%" SCNu64 "-%ld-%" SCNu64, &space, &pid, &start) == 3;
}

/* Writes the name of the job's folder; a process without a job has one of its own. */
static void
put_folder_name(char name[NAME_SIZE], const dl_recording_header *header)
{
    char own[NAME_SIZE];

    if (header->job[0] == '\0') {
        put_file_name(own, header);
        snprintf(name, NAME_SIZE, "process-%.80s", own);
        return;
    }
    snprintf(name, NAME_SIZE, "job-%.*s", (int)sizeof header->job, header->job);
    for (char *next = name; *next != '\0'; next++) {
        bool is_plain = strchr("-_", *next) != NULL || (*next >= '0' && *next <= '9')
                        || (*next >= 'a' && *next <= 'z')
                        || (*next >= 'A' && *next <= 'Z');
        *next = is_plain ? *next : '_';
    }
}

/* Joins the folder of the header's job below `runtime`. */
static bool
enter_job(dl_job_folder *folder, const char *runtime, const dl_recording_header *header)
{
    char name[NAME_SIZE];

    put_folder_name(name, header);
    return dl_job_folder_enter(folder, runtime, name);
}

static void *
create_in(dl_job_folder *folder, const char *runtime, const dl_recording_header *header,
          size_t size)
{
    char name[NAME_SIZE];
    int fd = open_folder(runtime);

    if (fd < 0) {
        return NULL;
    }
    close(fd);
    if (!enter_job(folder, runtime, header)) {
        return NULL;
    }
    put_file_name(name, header);
    void *memory = map_file(folder->fd, name, size);
    if (memory == NULL) {
        int error = errno;
        dl_job_folder_leave(folder);
        errno = error;
    }
    return memory;
}

/* Warns that the folder the user has chosen cannot be used: readers look nowhere else
 * and would miss this process silently. */
static void
warn_of_chosen_folder(int error)
{
    const char *chosen = getenv("DISTLITE_RUNTIME_DIR");

    if (chosen != NULL && chosen[0] != '\0') {
        dl_log(DL_LOG_WARNING,
               "nothing is recorded for `distlite ps` in DISTLITE_RUNTIME_DIR=%s: %s",
               chosen,
               error == EPERM ? "the folder must belong to this user and have mode 0700"
               : error == EINVAL ? "it must be an absolute path"
                                 : strerror(error));
    }
}

void *
dl_recording_create(const dl_recording_header *header, size_t size,
                    dl_job_folder *folder)
{
    char runtime[PATH_MAX];
    int error = EINVAL;

    for (int i = 0; i < FOLDERS; i++) {
        if (!dl_recording_folder(i, runtime)) {
            continue;
        }
        void *memory = create_in(folder, runtime, header, size);
        if (memory != NULL) {
            return memory;
        }
        error = errno;
    }
    warn_of_chosen_folder(error);
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool
dl_recording_path(const dl_job_folder *folder, const dl_recording_header *header,
                  char path[PATH_MAX])
{
    char name[NAME_SIZE];

    path[0] = '\0';
    if (folder->path[0] == '\0') {
        return false;
    }
    put_file_name(name, header);
    int size = snprintf(path, PATH_MAX, "%s/%s", folder->path, name);
    return size >= 0 && size < PATH_MAX;
}

/* Writes the path of the runtime folder that the folder is in. */
static void
put_runtime(char runtime[PATH_MAX], const dl_job_folder *folder)
{
    strcpy(runtime, folder->path);
    *strrchr(runtime, '/') = '\0';
}

void
dl_recording_move(const dl_recording_header *header, dl_job_folder *folder)
{
    char name[NAME_SIZE];
    char runtime[PATH_MAX];
    dl_job_folder entered;

    if (folder->path[0] == '\0') {
        return;
    }
    put_runtime(runtime, folder);
    if (!enter_job(&entered, runtime, header)) {
        return;
    }
    put_file_name(name, header);
    renameat(folder->fd, name, entered.fd, name);
    dl_job_folder_leave(folder);
    *folder = entered;
}

void
dl_recording_remove(const dl_recording_header *header, dl_job_folder *folder)
{
    char path[PATH_MAX];

    if (dl_recording_path(folder, header, path)) {
        unlink(path);
    }
    dl_job_folder_leave(folder);
}

bool
dl_job_folder_claim(dl_job_folder *folder, int64_t now, int64_t quiet)
{
    if (folder->claimed == NULL && folder->path[0] != '\0') {
        folder->claimed = map_claim(folder->fd);
    }
    _Atomic int64_t *claimed = folder->claimed == NULL ? &own_claim : folder->claimed;
    int64_t last = atomic_load(claimed);

    return (last == 0 || now - last > quiet)
           && atomic_compare_exchange_strong(claimed, &last, now);
}

void
dl_job_folder_end_claim(dl_job_folder *folder, int64_t now)
{
    if (folder->claimed != NULL) {
        atomic_store(&folder->claimed[1], now);
    }
}

void
dl_job_folder_sweep(dl_job_folder *folder)
{
    char runtime[PATH_MAX];

    if (folder->is_new) {
        folder->is_new = false;
        put_runtime(runtime, folder);
        sweep_folders(runtime, dl_deadline_after(SWEEP_LIMIT));
    }
}

void
dl_recordings_sweep(void)
{
    char runtime[PATH_MAX];

    for (int i = 0; i < FOLDERS; i++) {
        if (dl_recording_folder(i, runtime)) {
            sweep_folders(runtime, dl_deadline_after(-1));
        }
    }
}

static int
copy_recording(int fd, dl_buffer *copy)
{
    dl_recording_header header;
    struct stat found;

    if (fstat(fd, &found) < 0) {
        return errno;
    }
    size_t size = found.st_size > 0 ? (size_t)found.st_size : 1;
    void *memory = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return errno;
    }
    int error = DL_NO_RECORDING;
    if (dl_recording_check(memory, (size_t)found.st_size, &header)) {
        error = dl_recording_snapshot(memory, &header, copy) == DL_OK ? 0 : ENOMEM;
    }
    munmap(memory, size);
    return error;
}

int
dl_recording_read(const char *path, dl_buffer *copy)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        return errno;
    }
    int error = copy_recording(fd, copy);
    close(fd);
    return error;
}

static bool
read_files(const char *folder, const char *own, dl_recording_visit_fn visit,
           void *context)
{
    char path[PATH_MAX];
    dl_buffer copy = {0};
    bool goes_on = true;
    DIR *list = opendir(folder);
    struct dirent *entry;

    while (list != NULL && goes_on && (entry = readdir(list)) != NULL) {
        int size = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (is_recording_name(entry->d_name) && strcmp(entry->d_name, own) != 0
            && size >= 0 && (size_t)size < sizeof path
            && dl_recording_read(path, &copy) == 0) {
            goes_on = visit(context, path, &copy);
        }
    }
    if (list != NULL) {
        closedir(list);
    }
    dl_buffer_fini(&copy);
    return goes_on;
}

void
dl_recordings_of_job(const dl_recording_header *header, dl_recording_visit_fn visit,
                     void *context)
{
    char name[NAME_SIZE];
    char own[NAME_SIZE];
    char folder[PATH_MAX];
    char path[PATH_MAX];

    put_folder_name(name, header);
    put_file_name(own, header);
    for (int i = 0; i < FOLDERS; i++) {
        int size = dl_recording_folder(i, folder)
                       ? snprintf(path, sizeof path, "%s/%s", folder, name)
                       : -1;
        if (size >= 0 && (size_t)size < sizeof path
            && !read_files(path, own, visit, context)) {
            return;
        }
    }
}
