/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A join fault is the reason why a rank cannot join, which it leaves in the group's
 * store.  Ranks that wait in the store for something that this rank will not publish
 * check for faults between slices of their wait.  The text is a complete message, and
 * begins with the rank.  The key is also that of the check-in (check_in.py). */
#ifndef DISTLITE_PG_CPU_JOIN_FAULT_H
#define DISTLITE_PG_CPU_JOIN_FAULT_H

#include "pg/agree/rank_keys.h"

#define DL_JOIN_FAULT_KEY "fault"

/* Limit of the time for storing or reading a fault. */
#define DL_JOIN_FAULT_PATIENCE DL_SECOND

/* How long a wait lasts before it looks for faults.  Joins that succeed end within the
 * first slice.  Slices of long waits are longer, to spare the store, which serves all
 * ranks. */
#define DL_JOIN_FAULT_FIRST_SLICE (200 * DL_MILLISECOND)
#define DL_JOIN_FAULT_LAST_SLICE (500 * DL_MILLISECOND)

/* Stores the thread's last error, if this rank has caused it.  An error about another
 * rank that failed or did not come is not stored, because the other ranks find the
 * same; but after a timeout it is left for those that lose this rank.  Best effort; keeps
 * the error. */
void dl_join_fault_publish(dl_store *store, int rank);

/* Stores the error that ended the join, whichever rank has caused it, because the ranks
 * that this one can tell may not know; a timeout as dl_join_fault_publish() does.  Keeps a
 * fault that is there already.  Best effort; keeps the error. */
void dl_join_fault_pass_on(dl_store *store, int rank);

/* Returns DL_PEER_LOST with the text of a stored fault, unless its rank has come since;
 * else DL_OK, also if the store does not answer, and keeps the thread's last error. */
dl_status dl_join_fault_check(dl_store *store);

/* As dl_join_fault_check(), for a rank that has lost another one, the first that the
 * thread's last error names.  If that has timed out, its error has whom it waited for. */
dl_status dl_join_fault_check_lost(dl_store *store);

/* Waits for all of `keys` and reads their values.  Checks for faults between slices of
 * the wait, and calls `look`, unless it is NULL, for other reasons to end it.  Returns
 * DL_TIMEOUT with a text that names no ranks. */
dl_status dl_join_fault_await(const dl_rank_keys *keys, dl_store *store,
                              dl_buffer *values, dl_deadline deadline,
                              dl_status (*look)(void *context), void *context);

#endif
