/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The append-only file behind a FileStore: opening and locking it, the layout of its
 * records, and a picture of what it says that is brought up to date by reading only what
 * was added.  The layout is torch's:
 *
 *     u32 key size | key | u32 value size | value
 *
 * with "/" before a user's key, "-/" before one that was deleted, and the bare keys
 * "refcount/" and "cleanup/" counting who has the file open and who has closed it.  A
 * record counts once its key size is there: who is killed while writing one breaks
 * nothing. */
#ifndef DISTLITE_STORE_FILE_LOG_H
#define DISTLITE_STORE_FILE_LOG_H

#include "base/deadline.h"
#include "store/table.h"

#define DL_FILE_SET "/"
#define DL_FILE_DELETE "-/"
#define DL_FILE_REFERENCES "refcount/"
#define DL_FILE_CLEANUPS "cleanup/"

/* Exclusion is the owner's business. */
typedef struct dl_file_log {
    char *path;
    dl_table table; /* user keys */
    int64_t reference_count;
    int64_t cleanup_count;
    uint64_t offset; /* read so far */
    /* What follows is of a writer that was killed: its record has no key size.  The next
     * one writes over it. */
    bool is_unfinished;
    /* Of the file read so far: a file made anew starts over. */
    uint64_t inode;
    int64_t born;
    bool is_local; /* its file system shows every change at once, without the lock */
} dl_file_log;

typedef enum dl_file_access {
    DL_FILE_READ,   /* shared */
    DL_FILE_WRITE,  /* alone; makes the file if there is none */
    DL_FILE_UPDATE, /* alone; an absent file stays absent */
} dl_file_access;

dl_status dl_file_log_init(dl_file_log *log, const char *path);
void dl_file_log_fini(dl_file_log *log);

/* Others hold the lock for microseconds; one who was stopped may hold it for ever. */
#define DL_FILE_LOCK_PATIENCE (1 * DL_SECOND)

/* DL_TIMEOUT: the lock was not to be had.  A caller that looks repeatedly may have it the
 * next time. */
dl_status dl_file_fail_locked(const char *path);

/* Opens the file and locks it against other descriptors, of this process too.  `*fd` is
 * -1 when there is no file.  At least a second is spent on the lock, whatever the
 * deadline.  DL_NOT_FOUND when the folder is missing. */
dl_status dl_file_open(const char *path, dl_file_access access, dl_deadline deadline,
                       int *fd);

/* Unlocks and closes what dl_file_open() gave, -1 too.  A child that is forked in between
 * has neither the file nor a part in the lock. */
void dl_file_close(int fd);

/* Brings the picture up to date; an `fd` of -1 is an empty file.  A record that does not
 * fit into the file is DL_BACKEND, unless it is one that was never finished. */
dl_status dl_file_log_read(dl_file_log *log, int fd);

/* Whether the file is as it was read last, as far as can be told without its lock: unless
 * it is local, another host's changes may show later. */
bool dl_file_log_is_current(const dl_file_log *log);

/* Appends a record for `space` followed by `key` and reflects it in the picture, which
 * must be up to date; all or nothing. */
dl_status dl_file_log_write(dl_file_log *log, int fd, const char *space, dl_bytes key,
                            dl_bytes value);

#endif
