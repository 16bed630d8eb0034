/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the sessions of one server share: the table, and the lists of sessions that have
 * to be served although they have sent nothing, because another client's request
 * concerns them, or because time has passed.  The loop around the sessions:
 *
 *     read sockets -> dl_session_feed -> dl_hub_commit -> dl_session_take_changed -+
 *          ^                                                                 |
 *          |             send <- dl_session_resume <-------------------------+
 *          |               |
 *          +-- wait for input, until dl_hub_next_wake -> dl_hub_wake
 *
 * Server thread only. */
#ifndef DISTLITE_STORE_TCP_HUB_H
#define DISTLITE_STORE_TCP_HUB_H

#include "base/deadline.h"
#include "base/list.h"
#include "base/log.h"
#include "base/secret.h"
#include "net/tls.h"
#include "store/table.h"
#include "store/tcp/journal.h"
#include "store/tcp/limits.h"
#include "store/tcp/output.h"
#include "store/tcp/replies.h"

/* How much work a client gets in one turn before the others are served, in requests and
 * their keys: about half a millisecond.  The rest is done in its next turns; a request
 * that has begun is finished. */
#define DL_SESSION_WORK 2000

/* Most changed sessions that are served before the sockets are polled again. */
#define DL_HUB_ROUND 256

/* What a session does with the bytes that it is fed:
 *
 *     NEW -> [PROVING ->] SERVING <-> STALLED
 *      |         |           |           |
 *      +-> REFUSED <-        +-> [REPLACED or UNSAVED ->] OVER
 *
 * The order matters: those from SERVING on are admitted. */
typedef enum dl_phase {
    DL_PHASE_NEW,      /* nothing but VALIDATE is accepted */
    DL_PHASE_PROVING,  /* validated; the proof of the hub's secret is under way */
    DL_PHASE_REFUSED,  /* failed before it was admitted: nothing is served any more */
    DL_PHASE_SERVING,  /* requests are answered as they arrive */
    DL_PHASE_STALLED,  /* they are held back: no work or room left */
    DL_PHASE_REPLACED, /* its slot has a newer connection; it fails when resumed */
    DL_PHASE_UNSAVED,  /* the journal could not be written; it fails when resumed */
    DL_PHASE_OVER,     /* failed: nothing is served any more */
} dl_phase;

/* The part of a session that the hub knows. */
typedef struct dl_client {
    dl_phase phase;
    bool has_changed;    /* the replies that wait for the journal tell of changes */
    dl_list changed;     /* in the hub's list, like the next two */
    dl_list unsaved;     /* while replies wait for the journal */
    dl_list timed;       /* in `unauthenticated` or `slow` */
    int64_t timed_since; /* 0: there is no time limit */
} dl_client;

/* Returns whether the client's time limit has passed. */
static inline bool
dl_client_is_late(const dl_client *client)
{
    return client->timed_since != 0 && client->timed.next == NULL;
}

/* What the sessions of one server share. */
typedef struct dl_hub {
    dl_table table;
    dl_list changed; /* clients whose dl_session_resume() is to be called */
    /* Clients that have a time limit, the earliest first. */
    dl_list unauthenticated; /* not admitted yet: no valid VALIDATE, or no proof */
    dl_list slow;            /* have not read all that was sent to them */
    dl_limits limits;
    /* NULL: nothing is kept.  Otherwise replies wait for dl_hub_commit(). */
    dl_journal *journal;
    dl_list unsaved; /* clients with replies that wait for it */
    /* References, set before the first session. */
    dl_secret *secret; /* that clients have to prove (proof.h); NULL: none */
    dl_tls *tls; /* of their connections, of which sessions know nothing; NULL: none */
    size_t changed_count;
    size_t pending;        /* bytes held in incomplete requests and unread replies */
    size_t pending_output; /* those of them in unread replies */
    int work; /* what is left of DL_SESSION_WORK for the session being served */
    /* By which clients recognise the server; drawn before the first session. */
    uint8_t identity[DL_IDENTITY_SIZE];
    dl_replies replies;
    dl_shortcut shortcut; /* that clients of this host may take */
    dl_log_limit
        refusals[DL_STATUS_LAST + 1]; /* limits the lines of the log, by status */
    /* The counts of STATS; refusals by the limits of keys and bytes are counted in the
     * table. */
    uint64_t refused[DL_LIMIT_COUNT];
    uint64_t closed[DL_STATUS_LAST + 1]; /* clients that were refused, by status */
    uint64_t clients;                    /* connected now */
    uint64_t unix_clients;               /* those over the shortcut */
    uint64_t relays;                     /* connections that carry channels */
    uint64_t relayed_clients;            /* those in channels */
    uint64_t requests;                   /* served since the start */
    int64_t since;                       /* of the start */
    int64_t busy_since;   /* when the loop last began to serve; 0 while it sleeps */
    int64_t slowest_turn; /* nanoseconds from there until it slept or polled again */
} dl_hub;

/* Initialises the hub, with the default limits. */
void dl_hub_init(dl_hub *hub);
void dl_hub_set_limits(dl_hub *hub, const dl_limits *limits);

/* Opens the journal and fills the table with what it holds, as dl_journal_open() does.
 * Only before the first session, and after the limits are set. */
dl_status dl_hub_open_journal(dl_hub *hub, const char *path, dl_journal_sync sync);

/* To be called after each round of input, before dl_hub_take_changed(): makes the
 * changes of the round lasting, and marks the sessions whose replies waited for that.
 * Does nothing without a journal. */
void dl_hub_commit(dl_hub *hub);

/* Returns whether the loop has to continue without waiting for input. */
bool dl_hub_has_work(const dl_hub *hub);

/* To be called after dl_session_fini() of all sessions. */
void dl_hub_fini(dl_hub *hub);

/* Measure how long the loop is busy in one turn, during which it serves no other
 * client: the first is called before each client is served, the second when the loop
 * polls again. */
static inline void
dl_hub_busy(dl_hub *hub)
{
    if (hub->busy_since == 0) {
        hub->busy_since = dl_now();
    }
}

void dl_hub_idle(dl_hub *hub);

/* Logs that the connection of the client `name` is closed for the thread's last error: at
 * most one line a second for each status, so that no flood of clients fills the log. */
void dl_hub_log_refusal(dl_hub *hub, const char *name);

/* Appends the counts of the hub and of its table, for a reply to STATS. */
void dl_hub_put_stats(const dl_hub *hub, dl_buffer *text);

/* Returns the next changed client, or NULL: it has output because of another client's
 * request, has passed its time limit, or can continue, because its output is sent or a
 * new turn of the loop has begun.  dl_session_take_changed() returns its session.  After
 * each round of input, take as many as dl_hub_round() returned at first: sessions may be
 * marked again meanwhile. */
dl_client *dl_hub_take_changed(dl_hub *hub);

static inline size_t
dl_hub_round(const dl_hub *hub)
{
    return hub->changed_count < DL_HUB_ROUND ? hub->changed_count : DL_HUB_ROUND;
}

/* Returns when dl_hub_wake() must be called next; INT64_MAX: never. */
int64_t dl_hub_next_wake(const dl_hub *hub);

/* Marks sessions whose time limit has passed as changed.  Time limits apply to clients
 * that are not admitted yet, to those that do not read their replies, and to the
 * remembered replies of those that have lost their connections.  May end waits: sessions
 * are woken by dl_session_wake(). */
void dl_hub_wake(dl_hub *hub, int64_t now);

/* The following functions are called by the sessions. */

/* Marks the client as changed, or removes the mark. */
void dl_hub_mark(dl_hub *hub, dl_client *client);
void dl_hub_unmark(dl_hub *hub, dl_client *client);

/* Holds the client's further requests back, until it is resumed. */
static inline void
dl_hub_stall(dl_client *client)
{
    client->phase =
        client->phase == DL_PHASE_SERVING ? DL_PHASE_STALLED : client->phase;
}

#endif
