/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server's state of one client: decodes requests from its bytes, executes them on
 * the table, and encodes the replies.  No I/O, so that it can be tested, fuzzed and put
 * into any event loop.
 *
 * Requests are decoded in place from the bytes as they arrive; only the rest of an
 * unfinished one is copied, and nothing is allocated for sizes that have merely been
 * announced.  The cost is linear in the bytes, however they are split.  A client that
 * does not read its replies is not served until it does.  Server thread only. */
#ifndef DISTLITE_STORE_TCP_SESSION_H
#define DISTLITE_STORE_TCP_SESSION_H

#include "base/bytes.h"
#include "store/tcp/session_state.h"

/* Starts a session, which must send VALIDATE, and prove what the hub asks for, within
 * the time limit. */
void dl_session_init(dl_session *session, dl_hub *hub);

/* Cancels the session's wait and frees what it holds.  Zeroed memory is left as it
 * is. */
void dl_session_fini(dl_session *session);

/* Returns memory of the session to which the next bytes should be received, while a
 * large value for the table is arriving.  Returns false when they may be received
 * anywhere. */
bool dl_session_room(dl_session *session, uint8_t **data, size_t *size);

/* Serves the requests that `bytes` complete.  A failure ends the session, for the
 * reason in dl_last_error(): send the output that it has, and feed nothing more. */
dl_status dl_session_feed(dl_session *session, dl_bytes bytes);

/* Serves what was held back when the turn's work was used up or there was too much
 * output.  Fails as dl_session_feed() does, and with DL_TIMEOUT when a time limit has
 * passed. */
dl_status dl_session_resume(dl_session *session);

/* Returns whether dl_session_take_changed() will return the session. */
static inline bool
dl_session_is_marked(const dl_session *session)
{
    return session->client.changed.next != NULL;
}

/* Returns the session of dl_hub_take_changed(): call dl_session_resume(), then send. */
static inline dl_session *
dl_session_take_changed(dl_hub *hub)
{
    dl_client *client = dl_hub_take_changed(hub);

    return client == NULL ? NULL : DL_LIST_ENTRY(client, dl_session, client);
}

/* Calls dl_hub_wake(), and answers the waits that it has ended. */
void dl_session_wake(dl_hub *hub, int64_t now);

/* Returns whether the session has failed. */
static inline bool
dl_session_is_over(const dl_session *session)
{
    return session->client.phase == DL_PHASE_REFUSED
           || session->client.phase == DL_PHASE_OVER;
}

/* Returns false while the session is stalled or has too much output: its socket must
 * not be read then. */
bool dl_session_wants_input(const dl_session *session);

/* Returns whether output may be sent: false while it waits for the journal. */
static inline bool
dl_session_may_send(const dl_session *session)
{
    return session->client.unsaved.next == NULL;
}

/* Returns whether there is output to be sent. */
static inline bool
dl_session_has_output(const dl_session *session)
{
    return dl_output_size(&session->output) > 0;
}

/* To be called when all output is sent. */
void dl_session_sent(dl_session *session);

/* Starts the time limit of a session that has output left, or that was refused and
 * whose client must close the connection.  `has_taken` restarts it: the client has just
 * read something. */
void dl_session_owes(dl_session *session, bool has_taken);

/* Ends that time limit. */
void dl_session_owes_nothing(dl_session *session);

#endif
