/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The start of a journal (journal.h): opens its file, or makes one, and fills the server
 * with what it holds.  Before the server's thread runs. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_RECOVERY_H
#define DISTLITE_STORE_TCP_JOURNAL_RECOVERY_H

#include "store/tcp/journal_state.h"

/* Does what dl_journal_open() promises, except for recording.  `*fd` is the locked file,
 * of which `*size` bytes are whole and the rest is cut off; also on failure the caller
 * closes it unless it is -1. */
dl_status dl_journal_recover(const char *path, const dl_journal_state *state, int *fd,
                             uint64_t *size);

#endif
