/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The append-only file behind a FileStore: opening and locking it, the layout of its
 * records, and an in-memory image of its contents, which is updated by reading only what
 * was appended.  The layout is torch's:
 *
 *     u32 key size | key | u32 value size | value
 *
 * The key has the prefix "/" for a user's key and "-/" for its deletion.  The keys
 * "refcount/" and "cleanup/", without a prefix, count the members that have the file
 * open and those that have closed it.  A record is valid once its key size is written:
 * a process that is killed while writing one damages nothing. */
#ifndef DISTLITE_STORE_FILE_LOG_H
#define DISTLITE_STORE_FILE_LOG_H

#include "base/deadline.h"
#include "store/table.h"

#define DL_FILE_SET "/"
#define DL_FILE_DELETE "-/"
#define DL_FILE_REFERENCES "refcount/"
#define DL_FILE_CLEANUPS "cleanup/"

/* The owner provides exclusion. */
typedef struct dl_file_log {
    char *path;
    dl_table table; /* the image: user keys and their values */
    int64_t reference_count;
    int64_t cleanup_count;
    bool
        has_references; /* there is a record of the first count; below, of the second */
    bool has_cleanups;
    uint64_t offset; /* bytes of the file that the image covers */
    /* The bytes after `offset` are from a writer that was killed: a record without a
     * key size, which the next record overwrites. */
    bool is_unfinished;
    /* Inode and time of birth of the file that was read: a new file starts over. */
    uint64_t inode;
    int64_t born;
} dl_file_log;

typedef enum dl_file_access {
    DL_FILE_READ,   /* shared lock */
    DL_FILE_WRITE,  /* exclusive lock; creates the file */
    DL_FILE_UPDATE, /* exclusive lock; does not create the file */
} dl_file_access;

dl_status dl_file_log_init(dl_file_log *log, const char *path);
void dl_file_log_fini(dl_file_log *log);

/* How long to wait for the lock at least.  Others hold it for microseconds, but a
 * process that was stopped (SIGSTOP) may hold it for ever. */
#define DL_FILE_LOCK_PATIENCE (1 * DL_SECOND)

/* Opens the file and locks it against other descriptors, including those of this
 * process.  `*fd` is -1 if there is no file.  Waits at least DL_FILE_LOCK_PATIENCE for
 * the lock, whatever the deadline.  DL_NOT_FOUND: the folder does not exist. */
dl_status dl_file_open(const char *path, dl_file_access access, dl_deadline deadline,
                       int *fd);

/* Updates the image from the file; an `fd` of -1 stands for an empty file.  DL_BACKEND:
 * a record reaches beyond the end of the file and is not merely unfinished. */
dl_status dl_file_log_read(dl_file_log *log, int fd);

/* Returns whether the file is unchanged since it was read, as far as that is
 * visible without its lock: changes by other hosts may become visible later. */
bool dl_file_log_is_current(const dl_file_log *log);

/* Appends a record of what the image says of `key` already: with the prefix `space`.  The
 * image must cover the whole file.  On failure the file is as before, and the image is
 * empty, so that the next dl_file_log_read() reads all of it. */
dl_status dl_file_log_write(dl_file_log *log, int fd, const char *space, dl_bytes key,
                            dl_bytes value);

/* Sets the counter of members with the key `counter`, in the file and in the image; fails
 * as dl_file_log_write() does. */
dl_status dl_file_log_count(dl_file_log *log, int fd, const char *counter,
                            int64_t number);

#endif
