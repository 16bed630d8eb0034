/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "store/tcp/journal_state.h"

/* The lock of a server that was killed lasts until the processes that it was just
 * starting have executed their programs. */
#define LOCK_TRIES 20
#define LOCK_PAUSE (10 * DL_MILLISECOND)

/* Takes the lock.  The file may have been replaced since it was opened, by a server that
 * has ended meanwhile: `*is_current` tells whether it still has its name. */
static dl_status
lock_file(const char *path, int fd, bool *is_current)
{
    struct stat opened, named;

    int tries = LOCK_TRIES;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK && --tries > 0) {
            DL_TRY(dl_sleep_until(dl_deadline_after(LOCK_PAUSE)));
            continue;
        }
        return errno == EWOULDBLOCK
                   ? dl_fail(DL_INVALID,
                             "the store's journal %s is in use by another server; end "
                             "that, or give each server a file of its own",
                             path)
                   : dl_journal_file_fail(path, "flock", errno);
    }
    if (fstat(fd, &opened) != 0) {
        return dl_journal_file_fail(path, "fstat", errno);
    }
    *is_current = lstat(path, &named) == 0 && named.st_ino == opened.st_ino
                  && named.st_dev == opened.st_dev;
    return DL_OK;
}

static dl_status
check_file(const char *path, int fd, uint64_t *size)
{
    struct stat file;

    if (fstat(fd, &file) != 0) {
        return dl_journal_file_fail(path, "fstat", errno);
    }
    if (!S_ISREG(file.st_mode)) {
        return dl_fail(DL_INVALID, "the store's journal %s is not a regular file",
                       path);
    }
    if (file.st_uid != geteuid() || (file.st_mode & 077) != 0) {
        return dl_fail(DL_INVALID,
                       "the store's journal %s is open to others (mode %03o, user %d); "
                       "it must belong to this user and have mode 600: chmod 600 %s",
                       path, (unsigned)file.st_mode & 0777, (int)file.st_uid, path);
    }
    *size = (uint64_t)file.st_size;
    return DL_OK;
}

static dl_status
open_file(const char *path, int *fd, uint64_t *size)
{
    bool is_current = false;

    while (!is_current) {
        dl_file_close(*fd);
        *fd = dl_journal_file_open(path, O_CREAT);
        if (*fd < 0) {
            return errno == ELOOP
                       ? dl_fail(DL_INVALID,
                                 "the store's journal %s is a symbolic link, which is "
                                 "not followed; give the path of the file itself",
                                 path)
                       : dl_journal_file_fail(path, "opening it", errno);
        }
        DL_TRY(check_file(path, *fd, size));
        DL_TRY(lock_file(path, *fd, &is_current));
    }
    return check_file(path, *fd, size);
}

typedef struct recovery {
    dl_journal_state state;
    /* Of the latest POP, which the record of the reply to it does not repeat. */
    dl_bytes queue;
    dl_blob *popped; /* NULL: none yet */
} recovery;

static dl_status
apply_change(void *context, const dl_change *change)
{
    recovery *into = context;

    if (change->kind == DL_CHANGE_REPLY || change->kind == DL_CHANGE_FORGET) {
        return dl_replies_apply(into->state.replies, into->state.table, change,
                                into->queue, into->popped);
    }
    if (change->kind == DL_CHANGE_POP) {
        into->queue = change->key;
    }
    return dl_table_apply(into->state.table, change, &into->popped);
}

/* Applies the file's contents.  It is mapped and not read, since it may be as large as
 * the store. */
static dl_status
read_file(const char *path, int fd, uint64_t size, const dl_journal_state *state,
          dl_journal_contents *contents)
{
    recovery into = {.state = *state};

    if (size == 0) {
        *contents = (dl_journal_contents){0};
        return DL_OK;
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        return dl_journal_file_fail(path, "mapping it", errno);
    }
    dl_status status =
        dl_journal_read((dl_bytes){data, size}, apply_change, &into, contents);
    munmap(data, size);
    dl_blob_unref(into.popped);
    return status == DL_OK ? DL_OK : dl_fail_while("the store's journal %s", path);
}

/* Reads the file as it was written: what was within the limits of the server then must
 * not be refused in one with lower limits. */
static dl_status
read_within_no_limits(const char *path, int fd, uint64_t size,
                      const dl_journal_state *state, dl_journal_contents *contents)
{
    dl_table *table = state->table;
    const uint64_t key_limit = table->key_limit, size_limit = table->size_limit;

    table->key_limit = 0;
    table->size_limit = 0;
    dl_status status = read_file(path, fd, size, state, contents);
    table->key_limit = key_limit;
    table->size_limit = size_limit;
    return status;
}

/* Copies the file to a new one, `to`. */
static int
copy_file(int fd, uint64_t size, const char *to)
{
    int copy = dl_journal_file_open(to, O_CREAT | O_EXCL);
    int error = copy < 0 ? errno : 0;

    for (off_t at = 0; error == 0 && (uint64_t)at < size;) {
        ssize_t sent = sendfile(copy, fd, &at, (size_t)(size - (uint64_t)at));
        error = sent > 0 || (sent < 0 && errno == EINTR) ? 0 : sent < 0 ? errno : EIO;
    }
    if (error == 0 && fsync(copy) != 0) {
        error = errno;
    }
    if (error != 0 && copy >= 0) {
        (void)unlink(to);
    }
    dl_file_close(copy);
    return error;
}

/* Keeps a copy of the file beside it, under a name that is not in use, for whoever wants
 * to look for what is lost. */
static dl_status
keep_damaged(const char *path, int fd, uint64_t size, uint64_t whole)
{
    size_t room = strlen(path) + sizeof ".damaged-" + 10;
    char *kept = malloc(room);
    int error = EEXIST;

    if (kept == NULL) {
        return dl_fail_no_memory();
    }
    for (unsigned number = 1; error == EEXIST; number++) {
        snprintf(kept, room, "%s.damaged-%u", path, number);
        error = copy_file(fd, size, kept);
    }
    if (error == 0) {
        dl_log(
            DL_LOG_ERROR,
            "store server: the journal %s lacks blocks that the host had not written "
            "when it crashed: the store starts with the first %" PRIu64
            " bytes of it, and without the changes in the other %" PRIu64
            "; the old file is kept as %s",
            path, whole, size - whole, kept);
    }
    free(kept);
    return error == 0 ? DL_OK : dl_journal_file_fail(path, "copying it", error);
}

static dl_status
sync_name(const char *path)
{
    int folder;
    int error = dl_journal_file_open_folder(path, &folder);

    if (error != 0) {
        return error == ENOMEM
                   ? dl_fail_no_memory()
                   : dl_journal_file_fail(path, "opening its folder", error);
    }
    dl_journal_file_sync_folder(folder);
    return DL_OK;
}

/* Cuts off what the file has behind its whole frames. */
static dl_status
cut_off(const char *path, int fd, uint64_t size, const dl_journal_contents *contents)
{
    if (contents->has_hole) {
        DL_TRY(keep_damaged(path, fd, size, contents->size));
        DL_TRY(sync_name(path));
    } else {
        dl_log(DL_LOG_WARNING,
               "store server: the journal %s ends in the middle of a write: its last "
               "%" PRIu64 " bytes are dropped",
               path, size - contents->size);
    }
    return ftruncate(fd, (off_t)contents->size) == 0
               ? DL_OK
               : dl_journal_file_fail(path, "truncating it", errno);
}

dl_status
dl_journal_recover(const char *path, const dl_journal_state *state, int *fd,
                   uint64_t *size)
{
    dl_journal_contents contents;

    *fd = -1;
    DL_TRY(open_file(path, fd, size));
    DL_TRY(read_within_no_limits(path, *fd, *size, state, &contents));
    if (contents.is_torn || contents.has_hole) {
        DL_TRY(cut_off(path, *fd, *size, &contents));
    }
    if (contents.size == 0) {
        int error = dl_journal_file_begin(*fd, state->identity, size);
        if (error != 0) {
            return dl_journal_file_fail(path, "writing its head", error);
        }
    } else {
        memcpy(state->identity, contents.identity, DL_JOURNAL_IDENTITY_SIZE);
        *size = contents.size;
    }
    /* A server that was killed may have written what the disk does not have yet, and
     * from here on clients read it. */
    if (fdatasync(*fd) != 0) {
        return dl_journal_file_fail(path, "fdatasync", errno);
    }
    return sync_name(path);
}
