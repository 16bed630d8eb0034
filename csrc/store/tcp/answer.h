/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a session does with one request: executes it on the table, or makes it wait, and
 * puts the reply or the error into the session's output.
 *
 * A client of ours has a slot (store/tcp/replies.h): each of its changes is executed once,
 * and one that is repeated on a new connection gets the reply that the slot remembers. */
#ifndef DISTLITE_STORE_TCP_ANSWER_H
#define DISTLITE_STORE_TCP_ANSWER_H

#include "store/tcp/session_state.h"

/* Returns the session's output, to which replies are appended. */
dl_output *dl_answer_output(dl_session *session);

/* Answers a request, or begins to wait.  Returns a failure that ends the session; a checked
 * request that fails is answered with its error, and DL_OK is returned. */
dl_status dl_answer_request(dl_session *session, const dl_store_request *request);

/* Answers all waits that are over; to be called after every call that may have ended
 * some. */
void dl_answer_end_waits(dl_hub *hub);

/* Detaches the session from its slot, which the client may open again. */
void dl_answer_lose_slot(dl_session *session);

/* Cancels the session's wait. */
void dl_answer_leave_wait(dl_session *session);

#endif
