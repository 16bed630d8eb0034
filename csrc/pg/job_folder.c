/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/job_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

#define CLAIM_FILE "claim"
#define CLAIM_SIZE 4096

/* Attempts, a millisecond apart, for a folder that is being removed while this process
 * wants to join it.  The remover holds the lock for as long as unlinking takes, unless
 * it is stopped meanwhile: then the process goes on without a lock, and at worst its
 * recording is not found. */
#define LOCK_TRIES 100

static bool
is_prefix(const char *prefix, const char *name)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool
dl_job_folder_is_name(const char *name)
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
    entered.claimed = map_claim(entered.fd);
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

/* Used by a process that has no folder, and is therefore alone. */
static _Atomic int64_t own_claim;

bool
dl_job_folder_claim(dl_job_folder *self, int64_t now, int64_t quiet)
{
    _Atomic int64_t *claimed = self->claimed == NULL ? &own_claim : self->claimed;
    int64_t last = atomic_load(claimed);

    return (last == 0 || now - last > quiet)
           && atomic_compare_exchange_strong(claimed, &last, now);
}

void
dl_job_folder_end_claim(dl_job_folder *self, int64_t now)
{
    if (self->claimed != NULL) {
        atomic_store(&self->claimed[1], now);
    }
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

void
dl_job_folders_sweep(const char *runtime, dl_deadline deadline)
{
    DIR *list = opendir(runtime);
    struct dirent *entry;

    if (list == NULL) {
        return;
    }
    while ((entry = readdir(list)) != NULL && !dl_deadline_passed(deadline)) {
        if (dl_job_folder_is_name(entry->d_name)) {
            sweep_one(runtime, entry->d_name);
        }
    }
    closedir(list);
}
