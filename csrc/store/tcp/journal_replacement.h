/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A shorter file that takes the place of a journal's (journal.h): it has the server's
 * contents alone.  Writing it takes about a second for 1 GiB.  Server thread only. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_REPLACEMENT_H
#define DISTLITE_STORE_TCP_JOURNAL_REPLACEMENT_H

#include "store/tcp/journal_state.h"

/* Writes the contents to a new file, waits for the disk, whatever the journal's mode, since
 * a crash of the host may keep the name before the contents, and gives the file the name
 * `path`.  Returns 0 or an errno, after which the old file is as it was. */
int dl_journal_replace(const char *path, const dl_journal_state *state, int *fd,
                       uint64_t *size);

/* Removes what a server that was killed meanwhile has left. */
void dl_journal_replace_not(const char *path);

#endif
