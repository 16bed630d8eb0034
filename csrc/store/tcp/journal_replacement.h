/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A shorter file that takes the place of a journal's (journal.h).  The server's contents
 * are copied to it a little per turn, while changes go to both files:
 *
 *     begin -> step ... step -> a thread waits for the disk -> dl_replacement_adopt()
 *                    put, put ... (changes)
 *
 * The order of copies and changes does not matter.  A value or a slot that changes is
 * recorded anew behind its copy, and a copy overwrites what was recorded before.  The
 * records of queues say how many items there are afterwards, so that the new file always
 * has the newest items of each, and a copy of items that it has already changes nothing.
 *
 * Functions that return an int return 0 or an errno.  Server thread only. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_REPLACEMENT_H
#define DISTLITE_STORE_TCP_JOURNAL_REPLACEMENT_H

#include "store/tcp/journal_state.h"
#include "store/tcp/journal_sync.h"

typedef enum dl_replacement_stage {
    DL_REPLACEMENT_VALUES,
    DL_REPLACEMENT_ITEMS, /* of queues */
    DL_REPLACEMENT_SLOTS,
    DL_REPLACEMENT_SYNC, /* all is copied */
} dl_replacement_stage;

typedef struct dl_replacement {
    char *path; /* that of the journal and a suffix */
    int fd;     /* -1: none is being written */
    uint64_t size;
    dl_replacement_stage stage;
    dl_table_cursor cursor;
    size_t slots_left;
    dl_journal_sync_run sync;
} dl_replacement;

/* Removes what a server that was killed has left. */
dl_status dl_replacement_init(dl_replacement *replacement, const char *path);
void dl_replacement_fini(dl_replacement *replacement);

int dl_replacement_begin(dl_replacement *replacement, const dl_journal_state *state);

/* Copies some more of the contents.  All changes must have been put before. */
int dl_replacement_step(dl_replacement *replacement, const dl_journal_state *state);

/* Appends the frame of changes, which is sealed for this file. */
int dl_replacement_put(dl_replacement *replacement, dl_buffer *frame);

/* Returns whether the file is complete and on the disk, but for the changes that were put
 * meanwhile. */
static inline bool
dl_replacement_is_ready(const dl_replacement *replacement)
{
    return replacement->fd >= 0 && replacement->stage == DL_REPLACEMENT_SYNC
           && dl_journal_sync_is_over(&replacement->sync);
}

/* Gives the file the name of the journal, after waiting for the disk once more if
 * `is_synced`; the caller takes `fd` then. */
int dl_replacement_adopt(dl_replacement *replacement, const char *path, bool is_synced);

/* Closes and removes the file. */
void dl_replacement_drop(dl_replacement *replacement);

#endif
