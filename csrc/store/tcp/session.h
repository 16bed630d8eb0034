/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One client's conversation with the server: bytes in, table calls, bytes out.  No I/O,
 * so that it can be tested, fuzzed and put into any event loop.
 *
 * Requests are taken straight from the bytes as they came; only what is left of an
 * unfinished one is kept, and nothing is allocated for what has merely been announced.
 * The cost is linear in bytes however they are cut.  A client that does not read its
 * replies is not served until it does.  All of it belongs to the server's thread. */
#ifndef DISTLITE_STORE_TCP_SESSION_H
#define DISTLITE_STORE_TCP_SESSION_H

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/list.h"
#include "base/log.h"
#include "store/table.h"
#include "store/tcp/limits.h"
#include "store/tcp/names.h"
#include "store/tcp/output.h"

/* What a client may have done before it is the others' turn, in requests or keys of one:
 * about half a millisecond.  The rest of its requests is done in its next turns. */
#define DL_SESSION_WORK 2000

/* So many clients that others have woken are served before the sockets are looked at. */
#define DL_HUB_ROUND 256

/* What the sessions of one server share. */
typedef struct dl_hub {
    dl_table table;
    dl_list changed; /* sessions that something is to be done for */
    dl_list turns;   /* sessions that have their turn and have not used it, in order */
    /* Sessions that have a time limit, the earliest first. */
    dl_list strangers; /* that have not shown the magic number yet */
    dl_list slow;      /* that have not taken all that was sent to them */
    dl_limits limits;
    size_t changed_count;
    size_t pending; /* bytes held of requests half-sent and of replies not taken */
    int work;       /* what is left to the client whose turn it is */
    dl_names names; /* listings of a large table */
    dl_log_limit refusals[DL_INTERNAL + 1]; /* lines of the log, by status */
    dl_output *spare; /* passed around, so that a reply costs no allocation */
} dl_hub;

typedef struct dl_session {
    dl_hub *hub;
    dl_list changed;            /* in the hub's list */
    dl_output *output;          /* to be sent; NULL for nothing */
    struct dl_partial *partial; /* what is left of the input; NULL for nothing */
    dl_waiter waiter;           /* its one WAIT or BARRIER that is not answered yet */
    struct dl_long_request *current; /* under way: what came behind it has to wait */
    struct dl_long_request *waiting; /* a WAIT: `waiter` is at the key it has come to */
    dl_blob *turn;                   /* queue that the client awaits its turn for */
    dl_list turn_node;               /* in the hub's list, once it has come */
    int64_t turn_since;
    size_t pending; /* its part of the hub's */
    dl_list timed;  /* in one of the hub's lists */
    int64_t timed_since;
    bool is_validated;
    bool is_waking;  /* `waiting` is to look for its next key */
    bool is_stalled; /* nothing new is served: for want of work left, or of room */
    bool is_late;    /* its time is over */
    bool is_over;    /* nothing is served any more */
    bool wait_is_checked;
} dl_session;

/* With the default limits. */
void dl_hub_init(dl_hub *hub);
void dl_hub_set_limits(dl_hub *hub, const dl_limits *limits);

/* After all sessions. */
void dl_hub_fini(dl_hub *hub);

/* A session that has got output through somebody else's request, or may go on now that
 * its output is sent: call dl_session_resume(), then send.  NULL: there is none.  After
 * each round of input, take as many as dl_hub_round() said at first: some come again. */
dl_session *dl_hub_take_changed(dl_hub *hub);

static inline size_t
dl_hub_round(const dl_hub *hub)
{
    return hub->changed_count < DL_HUB_ROUND ? hub->changed_count : DL_HUB_ROUND;
}

void dl_session_init(dl_session *session, dl_hub *hub);
void dl_session_fini(dl_session *session);

/* Memory of the session's own that the next bytes had better be read to: a large value
 * on its way into the table.  False: there is none, read to anywhere. */
bool dl_session_room(dl_session *session, uint8_t **data, size_t *size);

/* Serves what `bytes` make complete.  A failure ends the conversation, for the reason in
 * dl_last_error(): send what output there is, feed nothing more. */
dl_status dl_session_feed(dl_session *session, dl_bytes bytes);

/* Serves what was left for want of work or while there was too much output.  Fails as feeding does. */
dl_status dl_session_resume(dl_session *session);

/* False: the client has to take its replies first, do not read from it. */
bool dl_session_wants_input(const dl_session *session);

/* All of `output`, the session's own or taken from it before, is sent. */
void dl_session_sent(dl_session *session, dl_output *output);

/* When dl_hub_wake() has something to do: INT64_MAX is never. */
int64_t dl_hub_next_wake(const dl_hub *hub);

/* Passes turns on: a client that waits for one name may be after an item of that queue,
 * and waits, then pops, so each push ends one such wait; what clients have had for so long
 * without using it, because they are stopped, goes to the next.  And makes clients come up as changed whose time is over: those that
 * have not shown the magic number, and those that do not take what is sent to them. */
void dl_hub_wake(dl_hub *hub, int64_t now);

/* The session has been sent to, and has output left or is to be closed by its client:
 * it has to take something within the limit.  `has_taken`: it just did. */
void dl_session_owes(dl_session *session, bool has_taken);

/* It does not, any more. */
void dl_session_owes_nothing(dl_session *session);

#endif
