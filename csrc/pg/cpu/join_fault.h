/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A join fault is the reason why a rank cannot join, which it leaves in the group's
 * store: in place of its record, so that it ends the waits for that, and in a key of its
 * own for the ranks that lose this one later.  The text is a complete message, and begins
 * with the rank.  The keys are also those of the check-in (check_in.py). */
#ifndef DISTLITE_PG_CPU_JOIN_FAULT_H
#define DISTLITE_PG_CPU_JOIN_FAULT_H

#include "pg/agree/rank_keys.h"

#define DL_JOIN_FAULT_KEY "fault"

/* Limit of the time for storing or reading a fault. */
#define DL_JOIN_FAULT_PATIENCE DL_SECOND

/* Precedes the text in a key that other ranks wait for. */
#define DL_JOIN_FAULT_MARK "fault: "

/* How often a rank that waits looks whether others have ended, for which it asks the
 * store nothing; and how soon for the first time, which is after most joins. */
#define DL_JOIN_FAULT_FIRST_LOOK (200 * DL_MILLISECOND)
#define DL_JOIN_FAULT_LOOK (500 * DL_MILLISECOND)

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

/* For a rank that has timed out, and whose last error names the one that it waited for:
 * waits a moment for that one's timeout, whose error has whom that waited for, and so on,
 * and fails with the last.  Keeps the error if there is none. */
dl_status dl_join_fault_check_late(dl_store *store);

/* A rank that waits for another one for half of its time leaves that in the store, as one
 * that has not joined yet, and again after three quarters, and so on: the deadlines of
 * ranks differ by as much as their starts, and the first one that times out finds by
 * this for whom all wait.  Returns when it is to do so next, for its deadline and
 * `*left`, 0 at first; the deadline if that is near.  dl_join_fault_note() stores the
 * thread's last error, if it is time; best effort; keeps the error. */
dl_deadline dl_join_fault_next(dl_deadline deadline, int64_t left);
void dl_join_fault_note(dl_store *store, int rank, dl_deadline deadline, int64_t *left);

/* Deletes what dl_join_fault_note() has left, once this rank has joined: a later join over
 * the same keys would read it.  Best effort; keeps the error. */
void dl_join_fault_clear(dl_store *store, int rank);

/* Ends the waits for `key`, which another rank will not publish, with the thread's last
 * error.  Best effort; keeps the error. */
void dl_join_fault_put(dl_store *store, dl_bytes key);

/* Waits for all of `keys`, and reads their values: two requests, and two more after half
 * a second, one and a half, and so on, up to every eight seconds, because ranks that fail
 * end no wait for others that are absent.  Calls `poll`, unless it is NULL, from time
 * to time, for other reasons to end the wait; it must not use the store.  Returns
 * DL_PEER_LOST with the text of a fault in a value, and DL_TIMEOUT with a text that
 * names no ranks. */
dl_status dl_join_fault_await(const dl_rank_keys *keys, dl_store *store,
                              dl_buffer *values, dl_deadline deadline,
                              dl_status (*poll)(void *context), void *context);

#endif
