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
#include "base/proof.h"
#include "store/tcp/hub.h"

typedef struct dl_session {
    dl_hub *hub;
    dl_list changed;            /* in the hub's list */
    dl_output *output;          /* to be sent; NULL for nothing */
    struct dl_partial *partial; /* input that is not served yet; NULL for nothing */
    dl_waiter waiter;           /* the one WAIT or BARRIER that is not answered yet */
    dl_long_request *current;   /* in progress; later requests are held back */
    dl_long_request *waiting;   /* a long WAIT; `waiter` waits for its next key */
    size_t pending;             /* its share of the hub's */
    size_t pending_output;
    dl_reply_slot *slot; /* of its changes; NULL: a client of torch's */
    dl_list timed;       /* in the hub's `strangers` or `slow` */
    int64_t timed_since;
    dl_proof
        *proof; /* under way; NULL before it begins and once the client is admitted */
    bool is_validated;
    bool is_admitted; /* validated, and proved where that is asked for */
    bool is_waking;   /* `waiting` has its key and must look for the next one */
    bool is_stalled;  /* requests are held back: no work or room left, or a long one */
    bool is_late;     /* its time limit has passed */
    bool is_replaced; /* its slot has a newer connection */
    dl_list unsaved;  /* in the hub's list, while replies wait for the journal */
    dl_output_mark saved; /* what precedes those replies */
    bool has_changed;     /* they tell of changes */
    bool is_checked;      /* the latest request was a checked one */
    bool is_unsaved;      /* the journal could not be written */
    bool is_over;         /* it has failed: nothing is served any more */
    bool wait_is_checked;
} dl_session;

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

/* Returns whether the hub will return the session from dl_hub_take_changed(). */
static inline bool
dl_session_is_marked(const dl_session *session)
{
    return session->changed.next != NULL;
}

/* Returns false while the session is stalled or has too much output: its socket must
 * not be read then. */
bool dl_session_wants_input(const dl_session *session);

/* Returns whether output may be sent: false while it waits for the journal. */
static inline bool
dl_session_may_send(const dl_session *session)
{
    return session->unsaved.next == NULL;
}

/* To be called when `output`, which is the session's own or was taken from it, is sent
 * completely. */
void dl_session_sent(dl_session *session, dl_output *output);

/* Starts the time limit of a session that has output left, or that was refused and
 * whose client must close the connection.  `has_taken` restarts it: the client has just
 * read something. */
void dl_session_owes(dl_session *session, bool has_taken);

/* Ends that time limit. */
void dl_session_owes_nothing(dl_session *session);

#endif
