/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds out what the ranks are doing that an operation of this process waits for.  It
 * reads their recordings if they run on this host, and otherwise what they have
 * published in the store. */
#ifndef DISTLITE_PG_LATE_RANKS_H
#define DISTLITE_PG_LATE_RANKS_H

#include "pg/wait_graph.h"
#include "pg/wait_words.h"
#include "store/store.h"

/* Writes what is known of the ranks that `row` of `rank` waits for; the text is empty
 * if nothing is.  `states` is indexed by rank, as for dl_wait_late_find().  If `store`
 * is NULL, only recordings of this host and `states` are used. */
void dl_late_ranks_describe(const dl_wait_state *const *states, int size,
                            dl_store *store, int rank, int row,
                            char text[DL_WAIT_LATE_SIZE]);

#endif
