/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One rank's messages to and from the ranks of other hosts in the collectives of one
 * group.  An algorithm queues what it sends and expects, stage by stage, and waits
 * until a stage is done.  While it waits, its thread moves everything that is queued,
 * in both directions.  The memory of a message must stay in place until its stage is
 * done.
 *
 * A rank that fails sends the reason to the ranks that it is connected with, and these
 * to theirs, so that every rank learns of the first cause. */
#ifndef DISTLITE_PG_CPU_TCP_TRAFFIC_H
#define DISTLITE_PG_CPU_TCP_TRAFFIC_H

#include <pthread.h>
#include <stdatomic.h>

#include "pg/cpu/tcp/route.h"
#include "pg/record/wait_graph.h"

typedef struct dl_traffic_options {
    int rank;
    int size;
    const char *group_name; /* this and the next three are borrowed */
    dl_peers peers;
    dl_tcp_contacts tcp_contacts;
    dl_listener *listener;
    bool may_spin;     /* this rank has a core of its own */
    bool has_listener; /* no other thread accepts there: to poll it is enough; and what
                          `check` looks for may be found later */
    /* Called between slices of sleep, or NULL: fails if something else has failed. */
    dl_status (*check)(void *context);
    /* When the deadline has passed or is near, `late` fails with what is known of the
     * reason, or returns DL_OK if nothing is.  Before the deadline, `announce_timeout`
     * receives the error with which the wait is going to fail.  Both may be NULL. */
    dl_status (*late)(void *context);
    void (*announce_timeout)(void *context, const dl_error *error);
    /* Returns whether the ranks that this one waits for are known to wait themselves,
     * so that others know the reason: the rank then waits past its deadline for that,
     * but no longer than the deadline was near before.  May be NULL. */
    bool (*others_know)(void *context);
    /* Adds the ranks that a wait is for besides those of the routes; or NULL. */
    void (*add_awaited)(void *context, dl_awaited *awaited);
    /* Called once, when this rank gives up, to inform the ranks to which there is no
     * route; or NULL. */
    void (*notify)(void *context, const dl_error *message, uint64_t sequence,
                   dl_deadline deadline);
    void *context;
} dl_traffic_options;

typedef struct dl_traffic {
    dl_traffic_options options; /* fixed after init */
    uint32_t fork_generation;   /* fixed after init */
    /* only for the thread that has `is_busy`, which it has during an operation */
    dl_route **routes; /* by rank; NULL: not needed yet */
    int *used;         /* ranks whose routes exist */
    int used_count;
    struct pollfd *polls; /* scratch: entries for all routes, and two */
    const dl_op_context *op;
    uint64_t sequence;                       /* of the last operation that has ended */
    dl_fingerprint called[DL_ROUTE_HISTORY]; /* for the routes */
    uint32_t stage;
    uint32_t awaited; /* the stage that the rank waits for */
    bool is_one_way;  /* in an operation: a rank may send nothing to who sends to it */
    /* In an operation: the largest number that this rank or one that it has heard from
     * has noted.  The heads of its messages have it. */
    uint8_t note;
    bool is_silent; /* the notices were sent */
    /* any thread */
    atomic_bool is_busy; /* a thread is in an operation, or sends notices */
    atomic_bool is_ended;
    atomic_int wake; /* eventfd that ends sleeps; -1: no sleep so far */
    pthread_mutex_t lock;
    dl_error end_cause;   /* guarded by lock: what this rank's waits fail with */
    dl_error end_message; /* guarded by lock: what the others receive */
} dl_traffic;

dl_status dl_traffic_init(dl_traffic *traffic, const dl_traffic_options *options);
void dl_traffic_fini(dl_traffic *traffic);

/* Begin and end an operation of this rank.  The functions down to
 * dl_traffic_is_notified() are called between the two. */
void dl_traffic_begin(dl_traffic *traffic, const dl_op_context *op);
void dl_traffic_end(dl_traffic *traffic);

/* Queue a message in the current stage.  dl_traffic_next() begins the next stage, and
 * returns the number of the one that it ends. */
dl_status dl_traffic_send(dl_traffic *traffic, int rank, const void *data, size_t size);
dl_status dl_traffic_receive(dl_traffic *traffic, int rank, void *data, size_t size);

/* As dl_traffic_receive(), in the stage that is `ahead` stages after the current one:
 * what is expected is read early, and a rank that gives up is noticed in any stage. */
dl_status dl_traffic_expect(dl_traffic *traffic, int rank, void *data, size_t size,
                            uint32_t ahead);
uint32_t dl_traffic_next(dl_traffic *traffic);

/* Waits until all messages of `stage` and of those before it have been sent and
 * received. */
dl_status dl_traffic_wait(dl_traffic *traffic, uint32_t stage);

/* Fails as a wait of this rank that times out now, and names the ranks that it is
 * for. */
dl_status dl_traffic_fail_late(const dl_traffic *traffic);

/* Called in an operation, after a failure: sends the thread's last error to the ranks
 * that this one is connected with, and to all of `others`. */
void dl_traffic_break(dl_traffic *traffic, const int *others, int count);

/* Returns the last operation that `rank` was seen in on its route; 0: none. */
uint64_t dl_traffic_last_seen(const dl_traffic *traffic, int rank);

/* Returns true if another rank has reported on a route that it gives up.  May also be
 * called from the option `notify`. */
bool dl_traffic_is_notified(const dl_traffic *traffic);

/* Ends this rank's sleep, so that it checks again whether to continue.  May be called
 * from any thread; takes no locks. */
void dl_traffic_wake(dl_traffic *traffic);

/* Called between operations, before the rank leaves in order: waits until the hosts of
 * the ranks to which data went one way have received it, until the deadline, or until
 * they have acknowledged nothing for a second.  Without this, a greeting that such a
 * rank sends to one that has closed the connection would be answered by a reset, which
 * discards data on its way.  Returns DL_INTERRUPTED or DL_OK. */
dl_status dl_traffic_finish(dl_traffic *traffic, dl_deadline deadline);

/* Fails this rank's waits with `cause`, and sends `message` to the other ranks.  May be
 * called from any thread, in an operation or not. */
void dl_traffic_abort(dl_traffic *traffic, const dl_error *cause,
                      const dl_error *message);

#endif
