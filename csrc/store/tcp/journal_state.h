/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the parts of a journal (journal.h) share: the parts of a server that it keeps, and
 * its files, which are private to the user, locked by one server, written at given
 * offsets, and closed in forked children.  journal_recovery.c opens or makes the file
 * before the server's thread runs; journal_replacement.c writes a shorter one that takes
 * its place and has the server's contents alone, which takes about a second for 1 GiB.
 * Functions that return an int return 0 or an errno. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_STATE_H
#define DISTLITE_STORE_TCP_JOURNAL_STATE_H

#include "store/journal_format.h"
#include "store/tcp/replies.h"

typedef struct dl_journal_state {
    dl_table *table;
    dl_replies *replies;
    uint8_t *identity; /* DL_JOURNAL_IDENTITY_SIZE bytes */
} dl_journal_state;

/* Opens the file for reading and writing, without following a symbolic link; with
 * O_CREAT in `flags` it gets mode 0600.  Returns -1 with errno set on failure; close it
 * with dl_file_close(). */
int dl_journal_file_open(const char *path, int flags);

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

/* Does what dl_journal_open() promises, except for recording.  `*fd` is the locked file,
 * of which `*size` bytes are whole and the rest is cut off; also on failure the caller
 * closes it unless it is -1. */
dl_status dl_journal_recover(const char *path, const dl_journal_state *state, int *fd,
                             uint64_t *size);

/* Writes the contents to a new file, waits for the disk, whatever the journal's mode, since
 * a crash of the host may keep the name before the contents, and gives the file the name
 * `path`.  Returns 0 or an errno, after which the old file is as it was. */
int dl_journal_replace(const char *path, const dl_journal_state *state, int *fd,
                       uint64_t *size);

/* Removes what a server that was killed meanwhile has left. */
void dl_journal_replace_not(const char *path);

#endif
