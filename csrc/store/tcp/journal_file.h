/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The files of a journal (journal.h): private to the user, locked by one server, written
 * at given offsets, and closed in forked children.  Functions that return an int return 0
 * or an errno. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_FILE_H
#define DISTLITE_STORE_TCP_JOURNAL_FILE_H

#include "base/status.h"
#include "store/journal_format.h"

/* Opens the file for reading and writing, without following a symbolic link; with
 * O_CREAT in `flags` it gets mode 0600.  Returns -1 with errno set on failure. */
int dl_journal_file_open(const char *path, int flags);

/* Unlocks and closes `*fd`, unless that is -1, and sets it to -1. */
void dl_journal_file_close(int *fd);

/* Writes the head of a new file; `*size` is the size of the file afterwards. */
int dl_journal_file_begin(int fd, const uint8_t identity[DL_JOURNAL_IDENTITY_SIZE],
                          uint64_t *size);

/* Opens the folder of `path`, before it gets a name that must last; `*folder` is -1 if
 * this user may not read it, and its names cannot be synced. */
int dl_journal_file_open_folder(const char *path, int *folder);

/* Waits until the disk has the names in the folder, and closes it; -1 does nothing. */
void dl_journal_file_sync_folder(int folder);

/* Returns DL_BACKEND; the text has the path, what was done, and the error. */
dl_status dl_journal_file_fail(const char *path, const char *what, int error);

#endif
