/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Why a rank cannot join, left in the group's store for the others: whoever waits there for
 * what this rank will not bring finds it between two looks.  The text is whole, and begins
 * with the rank.  The key is the one of the check-in (check_in.py). */
#ifndef DISTLITE_PG_CPU_JOIN_FAULT_H
#define DISTLITE_PG_CPU_JOIN_FAULT_H

#include "pg/rank_keys.h"

#define DL_JOIN_FAULT_KEY "fault"

/* Waits for the store so long to tell or to look. */
#define DL_JOIN_FAULT_PATIENCE DL_SECOND

/* Tells what the thread's last error is, if it is this rank's own: not that others have
 * failed or have not come, which they know.  Best effort; keeps the error. */
void dl_join_fault_tell(dl_store *store, int rank);

/* The same of the leader of a host: what ended the join on its host, whoever failed, is not
 * known on others.  Leaves alone what was told before. */
void dl_join_fault_pass_on(dl_store *store, int rank);

/* DL_PEER_LOST: what a rank has told, unless it has come since. */
dl_status dl_join_fault_check(dl_store *store);

/* Waits for all of `keys` and reads them, and looks between slices for faults, and with
 * `look`, unless it is NULL, at what else may end the wait.  DL_TIMEOUT: without a text
 * that names anybody. */
dl_status dl_join_fault_await(const dl_rank_keys *keys, dl_store *store,
                              dl_buffer *values, dl_deadline deadline,
                              dl_status (*look)(void *context), void *context);

#endif
