/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A shorter file that takes the place of a journal's (journal.h).  The server's contents
 * are written to it at once, which takes about a second for 1 GiB; then changes go to both
 * files until the disk has the new one:
 *
 *     begin -> a thread waits for the disk -> dl_replacement_adopt()
 *              put, put ... (changes)
 *
 * Functions that return an int return 0 or an errno.  Server thread only. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_REPLACEMENT_H
#define DISTLITE_STORE_TCP_JOURNAL_REPLACEMENT_H

#include "store/tcp/journal_state.h"
#include "store/tcp/journal_sync.h"

typedef struct dl_replacement {
    char *path; /* that of the journal and a suffix */
    int fd;     /* -1: there is none */
    uint64_t size;
    dl_journal_sync_run sync;
} dl_replacement;

/* Removes what a server that was killed has left. */
dl_status dl_replacement_init(dl_replacement *replacement, const char *path);
void dl_replacement_fini(dl_replacement *replacement);

/* Writes the contents to a new file. */
int dl_replacement_begin(dl_replacement *replacement, const dl_journal_state *state);

/* Appends the frame of changes, with a checksum for this file. */
int dl_replacement_put(dl_replacement *replacement, dl_buffer *frame);

/* Returns whether the file is on the disk, but for the changes that were put
 * meanwhile. */
static inline bool
dl_replacement_is_ready(const dl_replacement *replacement)
{
    return replacement->fd >= 0 && dl_journal_sync_is_over(&replacement->sync);
}

/* Gives the file the name of the journal, after waiting for the disk once more if
 * `is_synced`; the caller takes `fd` then. */
int dl_replacement_adopt(dl_replacement *replacement, const char *path, bool is_synced);

/* Closes and removes the file. */
void dl_replacement_drop(dl_replacement *replacement);

#endif
