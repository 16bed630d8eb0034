/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks are doing that an operation of this process waits for: out of their
 * recordings where they run on this host, else out of what they have told the store. */
#ifndef DISTLITE_PG_LATE_RANKS_H
#define DISTLITE_PG_LATE_RANKS_H

#include "pg/wait_graph.h"
#include "pg/wait_words.h"
#include "store/store.h"

/* Writes what is known of the ranks that `row` of `rank` waits for; nothing where nothing
 * is.  `states` by rank, as for dl_wait_late_find(); the store is not asked if NULL. */
void dl_late_ranks_describe(const dl_wait_state *const *states, int size,
                            dl_store *store, int rank, int row,
                            char text[DL_WAIT_LATE_SIZE]);

#endif
