/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The members of a group.  Shared by the files that implement one: membership.c, which
 * makes and ends it, collectives.c and messages.c, which run its operations, and the few
 * others of this folder that need its locks or its backend. */
#ifndef DISTLITE_PG_GROUP_STATE_H
#define DISTLITE_PG_GROUP_STATE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "pg/backend.h"
#include "pg/group.h"
#include "pg/lane.h"
#include "pg/record/recorder.h"

/* What serves the arrays in one kind of memory: a backend, the order of its operations,
 * and where they are recorded.  The two sides of a group do not wait for each other. */
typedef struct dl_side {
    const dl_backend_kind *kind; /* fixed after init, like the seat */
    dl_seat seat;
    _Atomic uint64_t sequence; /* operations begun; written by the holder of the turn */
    /* The turn is held by the thread that runs an operation or frees the backend. */
    dl_lane lane;
    /* Changed with the group's lock and the turn held; either of them suffices to use
     * it.  On the side for devices it is NULL before the first operation. */
    dl_backend *backend;
    struct dl_agreement *agreement; /* changed like the backend; NULL: calls are not
                                     * compared (pg/agree/agreement.h) */
} dl_side;

/* How arrays on devices are treated if the group has no side for devices. */
typedef enum dl_device_arrays {
    DL_ARRAYS_REFUSED,
    DL_ARRAYS_STAGED, /* run by the CPU's side on copies in its memory (staging.h) */
    DL_ARRAYS_PASSED, /* as they are, as the CPU's side touches no array */
} dl_device_arrays;

struct dl_group {
    atomic_uint references;
    _Atomic int64_t timeout;
    _Atomic uint64_t monitored; /* monitored barriers called so far */
    /* fixed after init */
    char *name;
    char *backend_name;
    int rank;
    int size;
    dl_store *store;
    uint32_t fork_generation;
    pid_t creator;
    dl_list deadlock_node; /* guarded by own_waits.c's lock */
    /* set before own_waits.c lists the group; NULL if they equal the group's ranks */
    int32_t *global_ranks;
    size_t brief; /* as in dl_backend */
    bool has_brief_messages;
    dl_side host;                   /* serves the CPU's memory */
    struct dl_device_side *device;  /* NULL if devices have no side of their own */
    dl_device_arrays device_arrays; /* fixed before the group is used, like `device` */
    struct dl_pinned *pinned; /* for copies of arrays, used with the turn; or NULL */
    pthread_mutex_t lock;
    atomic_bool is_broken;
    atomic_bool is_closed;
    dl_error cause; /* returned by all later calls; fixed once is_broken */
    bool is_ended;  /* guarded by lock; aborted by its owner, or closed: then no groups
                     * are made out of it */
};

/* Returns true in a forked child whose parent made the group. */
bool dl_group_is_inherited(const dl_group *group);

/* Fails if the group, a dl_group, is unusable, and otherwise returns dl_backend_ops.watch
 * for `rank`; DL_OK if there is no backend to ask. */
dl_status dl_group_check_rank(void *group, int rank);

/* Returns dl_backend_ops.lost for `rank`, or for any other rank if it is -1. */
dl_status dl_group_lost(dl_group *group, int rank);

/* Breaks the group with `cause`, unless it is broken already. */
void dl_group_set_cause(dl_group *group, const dl_error *cause);

/* dl_group_pass_turn() passes a side's turn on and then does what the other does: frees
 * the backend if the group is closed and nobody has the turn. */
void dl_group_pass_turn(dl_group *group, dl_side *side);
void dl_group_free_backend_if_closed(dl_group *group, dl_side *side);

/* Frees the backend, and in a forked child nothing that it shares with the parent. */
void dl_side_fini(dl_side *side, bool is_inherited);

/* Numbers an operation that begins, and records it.  Called with the turn held. */
static inline void
dl_side_begin(dl_side *side, dl_op_context *context)
{
    context->sequence = atomic_load_explicit(&side->sequence, memory_order_relaxed) + 1;
    atomic_store_explicit(&side->sequence, context->sequence, memory_order_relaxed);
    context->record =
        dl_recorder_start(&side->seat, context->record, &context->fingerprint,
                          context->sequence, context->deadline);
}

#endif
