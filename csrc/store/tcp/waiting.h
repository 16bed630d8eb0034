/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A session's WAIT or BARRIER: parked in the table, answered when it is over, given up
 * when the client cancels, starts another or leaves.  One per session at a time.
 *
 * A client that waits for one name may be after an item of that queue: it waits, then
 * pops.  Each push therefore ends one such wait, and if that client then does something
 * else, or nothing for a second because it is stopped, the next gets its turn. */
#ifndef DISTLITE_STORE_TCP_WAITING_H
#define DISTLITE_STORE_TCP_WAITING_H

#include "base/deadline.h"
#include "store/tcp/session.h"
#include "store/tcp/wire.h"

/* WAIT, BARRIER: either replies at once or dl_waiting_end() does. */
dl_status dl_waiting_begin(dl_session *session, const dl_store_request *request);
dl_status dl_waiting_barrier(dl_session *session, const dl_store_request *request);

/* Before each request: a client that has its turn uses it or loses it. */
void dl_waiting_use_turn(dl_session *session, const dl_store_request *request);

/* Gives up the wait and the turn, if any. */
void dl_waiting_leave(dl_session *session);

/* When dl_waiting_pass_turns() has something to do. */
dl_deadline dl_waiting_next_turn(const dl_hub *hub);

/* Passes on what clients have had for so long before `now` without using it. */
void dl_waiting_pass_turns(dl_hub *hub, int64_t now);

/* Answers all waits that are over; after whatever may have ended some. */
void dl_waiting_end(dl_hub *hub);

#endif
