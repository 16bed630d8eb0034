/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One rank's messages to and from ranks of other hosts in the collectives of one group.
 * An algorithm queues what it sends and expects, stage by stage, and waits until a stage
 * is done: meanwhile everything that is queued moves, in both directions, driven by the
 * thread that waits.  The memory stays in place until then.
 *
 * Whoever fails says why to those it is connected with, and these to theirs: so every
 * rank hears of the first cause. */
#ifndef DISTLITE_PG_CPU_TCP_TRAFFIC_H
#define DISTLITE_PG_CPU_TCP_TRAFFIC_H

#include <pthread.h>
#include <stdatomic.h>

#include "pg/cpu/tcp/route.h"
#include "pg/wait_graph.h"

typedef struct dl_traffic_options {
    int rank;
    int size;
    const char *group_name; /* these four are borrowed */
    const dl_peer *peers;   /* by rank */
    const dl_way *ways;     /* by rank */
    dl_listener *listener;
    uint64_t family; /* the group's (pg/cpu/family.h) */
    bool may_spin;   /* this rank has a core to itself */
    /* Between the slices of a wait: whether something else has failed; may be NULL. */
    dl_status (*check)(void *context);
    /* When the deadline has come: what is known of why, DL_OK for nothing; a while before:
     * what the wait is going to fail with.  Both may be NULL. */
    dl_status (*late)(void *context);
    void (*foretell)(void *context, const dl_error *error);
    /* Adds whom a wait is for beside the ranks that it hears; may be NULL. */
    void (*add_awaited)(void *context, dl_awaited *awaited);
    /* Once, when this rank gives up: whom no route leads to; may be NULL. */
    void (*tell)(void *context, const dl_error *message, uint64_t sequence,
                 dl_deadline deadline);
    void *context;
} dl_traffic_options;

typedef struct dl_traffic {
    dl_traffic_options options; /* fixed after init */
    uint32_t fork_generation;   /* the same */
    /* the thread that is in an operation only, or who has `is_busy` */
    dl_route **routes; /* by rank; NULL: not needed yet */
    int *used;         /* ranks of the routes there are */
    int used_count;
    struct pollfd *polls; /* scratch: those of all routes, and two */
    const dl_op_context *op;
    uint64_t sequence; /* of the last operation that has ended */
    uint32_t stage;
    bool is_silent; /* a farewell was said */
    /* any thread */
    atomic_bool is_busy; /* a thread is in an operation, or says a farewell */
    atomic_bool is_ended;
    atomic_int wake; /* an event that ends sleeps; -1: no sleep has needed it yet */
    pthread_mutex_t lock;
    dl_error end_cause;   /* guarded by lock: of this rank's waits */
    dl_error end_message; /* guarded by lock: for the others */
} dl_traffic;

dl_status dl_traffic_init(dl_traffic *traffic, const dl_traffic_options *options);
void dl_traffic_fini(dl_traffic *traffic);

/* An operation of this rank; between them all other calls but the last two. */
void dl_traffic_begin(dl_traffic *traffic, const dl_op_context *op);
void dl_traffic_end(dl_traffic *traffic);

/* Queued in the current stage, which dl_traffic_next() counts on; returns the one that
 * has ended. */
dl_status dl_traffic_send(dl_traffic *traffic, int rank, const void *data, size_t size);
dl_status dl_traffic_receive(dl_traffic *traffic, int rank, void *data, size_t size);
uint32_t dl_traffic_next(dl_traffic *traffic);

/* Until all of that stage and those before it has gone and come. */
dl_status dl_traffic_wait(dl_traffic *traffic, uint32_t stage);

/* In an operation, after a failure: tells those it is connected with, and all of
 * `others`, of the thread's last error. */
void dl_traffic_break(dl_traffic *traffic, const int *others, int count);

/* The last operation that `rank` was seen in on its route; 0: none. */
uint64_t dl_traffic_heard(const dl_traffic *traffic, int rank);

/* Whether another rank has said on a route that it gives up; in an operation, or told. */
bool dl_traffic_is_told(const dl_traffic *traffic);

/* Ends this rank's sleep, so that it looks again whether to go on; from any thread, takes
 * no locks. */
void dl_traffic_wake(dl_traffic *traffic);

/* From any thread, in an operation or not: `cause` ends this rank's waits, and the other
 * ranks are told `message`. */
void dl_traffic_abort(dl_traffic *traffic, const dl_error *cause,
                      const dl_error *message);

#endif
