/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The interface between a group and the engine that moves its data, with one function
 * per collective, or one that enqueues operations of every kind in the order of
 * streams. A NULL entry means that the backend lacks the operation or the capability;
 * the error for that is made in collectives.c.  A backend that returns DL_UNSUPPORTED
 * promises that it has sent nothing and that all ranks get the same status, so the
 * group stays usable. */
#ifndef DISTLITE_PG_BACKEND_H
#define DISTLITE_PG_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"
#include "pg/call.h"
#include "pg/device/device_options.h"
#include "pg/fingerprint.h"
#include "pg/window_part.h"
#include "pg/work.h"
#include "store/store.h"

typedef struct dl_backend dl_backend;
typedef struct dl_region dl_region; /* pg/region.h */

/* The context that every operation carries, whatever its kind. */
typedef struct dl_op_context {
    uint64_t sequence;          /* number of the operation in its group, from 1 */
    dl_fingerprint fingerprint; /* compared with the other ranks' */
    dl_deadline deadline;
    /* Has the line that called the operation, and is reported by its waits; NULL if the
     * operation is not recorded. */
    dl_record *record;
    /* For an operation that runs after its caller has returned: checked before elements
     * are touched, and again after every wait that may have been long.  NULL if the
     * arrays stay in place anyway. */
    const dl_guard *guard;
} dl_op_context;

/* Checks that the arrays are still where they were; the error of a failure
 * names the operation. */
static inline dl_status
dl_op_check_arrays(const dl_op_context *op)
{
    dl_status status = dl_guard_check(op->guard);

    return status == DL_OK ? DL_OK
                           : dl_fail_while("%s", dl_op_type_name(op->fingerprint.op));
}

/* An operation on its way to a backend. */
typedef struct dl_op {
    const dl_call *call;
    dl_op_context context;
} dl_op;

/* Operations on arrays of one device that begin together. */
typedef struct dl_batch {
    const dl_op *ops;
    size_t count;         /* at least 1 */
    bool is_batch;        /* opened by the caller as a batch, even of one operation */
    dl_deadline deadline; /* also the deadline of the operations themselves */
} dl_batch;

/* Carries out one collective.  The entry of all_gather also exchanges the parts of
 * windows; `call->op` distinguishes them. */
typedef dl_status dl_collective_fn(dl_backend *, const dl_op_context *,
                                   const dl_call *);

typedef struct dl_backend_ops {
    const char *name; /* "cpu", "nccl", ... */
    bool is_alone;    /* operations need no other rank and touch no array */
    /* By dl_op_type, for the even forms; the uneven and coalesced ones share them. */
    dl_collective_fn *collectives[DL_OP_TYPE_COUNT];
    /* Starts a DL_SEND or a receive without waiting; may be called from any thread and
     * is not ordered with collectives.  Later failures are reported by the work and
     * leave the group usable.  The elements stay in place until the work has ended.
     * The work may be NULL if the message is awaited, or its work is optional, and it
     * has already completed without an error. */
    dl_status (*post)(dl_backend *, const dl_call *, dl_deadline, dl_work **);
    /* Starts several messages in their order, as `post` does for each of them: works[i]
     * is that of calls[i].  `*posted` is how many have begun, all of them unless it
     * fails.  NULL: `post` is called for each. */
    dl_status (*post_all)(dl_backend *, const dl_call *calls, int count, dl_deadline,
                          dl_work **works, int *posted);
    /* Of a backend that is ordered by streams, in place of `collectives` and `post`:
     * begins operations of any kind after what the streams of their arrays hold, without
     * waiting for them.  The work ends by itself, and streams can be ordered after it.
     * The sequence of a message is 0. */
    dl_status (*enqueue)(dl_backend *, const dl_batch *, dl_work **);
    /* For backends of devices.  `connect` meets the other ranks now rather than with the
     * first operation.  `device` returns the device on which all ranks have met, or -1
     * if they have not; NULL if the backend takes no part in barriers.  `ways` stores
     * what another group can follow from this one by (DL_DEVICE_CAN_SHRINK, ...), after
     * waiting for its operations.  `split` gives `child`, unless NULL, what it needs so
     * that its ranks do not have to meet, and does nothing if the parent's ranks have not
     * met yet; the parent is NULL for a rank by which it grows. */
    dl_status (*connect)(dl_backend *, int device, dl_deadline);
    int (*device)(const dl_backend *);
    dl_status (*ways)(dl_backend *, dl_deadline, int *ways);
    dl_status (*split)(dl_backend *, const dl_device_split_args *, dl_deadline,
                       dl_backend *child);
    /* Fails with the reason if nothing more will come from `rank`: the rank is gone, or
     * this rank was aborted.  Returns DL_OK otherwise, as far as is known. Does not
     * block; may be called from any thread.  NULL if the backend cannot tell before an
     * operation fails. */
    dl_status (*watch)(dl_backend *, int rank);
    /* Returns DL_PEER_LOST if `rank`, or any other rank for -1, has ended or has
     * aborted the group, as far as is known; connections to other hosts, which end with
     * their processes, are made by the first calls.  A rank that has left the group in
     * order is not lost.  Does not block; may be called from
     * any thread.  NULL if nothing is ever known. */
    dl_status (*lost)(dl_backend *, int rank);
    /* Returns whether the process of `rank` is known to have ended, or, on another host,
     * cannot be reached.  Also after this rank, or `rank`, has aborted the group, or has
     * left it in order: a process that lives has not ended.  Does not block; may be
     * called from any thread.  NULL if nothing is ever known. */
    bool (*has_ended)(dl_backend *, int rank);
    /* Returns whether `rank` is shown to be a process of this job: it runs as the same
     * user on this host, or has proved the job's token on the way that its data takes.
     * The answer stays the same.  NULL if the backend cannot tell. */
    bool (*is_proved)(dl_backend *, int rank);
    /* Allocates memory that operations need not copy.  May be called from any thread.
     * NULL if the backend prefers no memory over any other. */
    dl_status (*share)(dl_backend *, size_t, dl_region **);
    /* Makes this rank's part of a window (pg/window_part.h), without waiting for other
     * ranks.  May be called from any thread.  NULL if the backend has no windows. */
    dl_status (*window)(dl_backend *, const dl_window_options *, dl_window_part **);
    /* Compares the calls whose comparison was deferred with those of the ranks that
     * reach them by the deadline.  Called with the turn held, before an orderly end.
     * NULL if no comparison is ever deferred. */
    dl_status (*verify_calls)(dl_backend *, dl_deadline);
    /* Waits until what this rank has sent has been accepted, before an orderly end, and
     * looks for signals: DL_INTERRUPTED or DL_OK.  Called with the turn held.  NULL if
     * nothing that was sent is ever kept. */
    dl_status (*finish)(dl_backend *, dl_deadline);
    /* Wakes all waiters, which fail with `cause`, and tells the peers that need this
     * rank.  Local, bounded and idempotent; may be called from any thread. */
    void (*abort)(dl_backend *, const dl_error *cause);
    /* Called before `abort` for an orderly end: informs the peers that still need this
     * rank that it has left.  A backend that is ordered by streams lets operations end
     * that have begun, and ignores that abort. */
    void (*leave)(dl_backend *);
    /* Called after the last operation.  In a forked child it touches nothing that is
     * shared with the parent. */
    void (*free)(dl_backend *);
} dl_backend_ops;

/* The part of a backend that every group made out of its group shares, such as who its
 * ranks are and how they are reached.  It is reference-counted and lives as long as the
 * last of these groups.  A backend embeds it first in a struct of its own, and gets it
 * back in the options of the next group. */
typedef struct dl_backend_origin dl_backend_origin;

struct dl_backend_origin {
    atomic_uint references;
    void (*free)(dl_backend_origin *);
};

/* Initialises an origin with one reference; `free` is called when the last
 * one is dropped. */
void dl_backend_origin_init(dl_backend_origin *origin,
                            void (*free)(dl_backend_origin *));
dl_backend_origin *dl_backend_origin_ref(dl_backend_origin *origin);
void dl_backend_origin_unref(dl_backend_origin *origin);

/* Embedded first in every backend. */
struct dl_backend {
    const dl_backend_ops *ops;
    /* An operation on fewer bytes takes a few microseconds if no rank is
     * late, and calls dl_blocking_begin() otherwise.  0 if no operation does;
     * fixed after init. */
    size_t brief;
    /* The same holds for messages: posting them and waiting for them. */
    bool has_brief_messages;
    bool spans_hosts; /* some ranks may be on other hosts; fixed after init */
    /* Passed to the groups made out of this one, unless NULL; fixed after init. */
    dl_backend_origin *origin;
    const int *origin_ranks; /* by rank, the rank in the origin; NULL if equal */
    /* The CPU backend of the same ranks, if this one moves only the data of collectives:
     * it does the rest, from messages to the orderly end.  Owned; fixed after init. */
    dl_backend *cpu;
};

/* Returns the backend that carries the messages, shares memory and watches the ranks;
 * NULL for NULL. */
static inline dl_backend *
dl_backend_of_messages(dl_backend *backend)
{
    return backend == NULL || backend->cpu == NULL ? backend : backend->cpu;
}

/* Returns the entry that carries out `op`, or NULL if the backend has none. */
static inline dl_collective_fn *
dl_backend_entry(const dl_backend_ops *ops, dl_op_type op)
{
    return ops->collectives[op == DL_WINDOW ? DL_ALL_GATHER : op];
}

/* Runs a collective for which the backend has an entry. */
static inline dl_status
dl_backend_run(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    return dl_backend_entry(backend->ops, call->op)(backend, op, call);
}

/* The options of a backend's constructor; borrowed for the call. */
typedef struct dl_backend_options {
    dl_store *store; /* already prefixed for this group */
    int rank;
    int size;
    const char *group_name;
    /* For a group made out of another one with the same backend, whose ranks do not
     * meet anew; otherwise NULL. */
    dl_backend_origin *origin;
    const int *origin_ranks; /* by rank */
    /* For a backend that serves a group's arrays on devices, whose options are not NULL:
     * the same as in dl_backend_ops for the group's CPU side, to be called without the
     * locks that abort() and leave() need.  `context` lives as long as the backend. */
    const dl_device_options *on_device;
    dl_status (*lost)(void *context, int rank);
    void *context;
} dl_backend_options;

/* Called by a backend on the thread that runs an operation, which then fails: something
 * that the backend could not stop may still use the operation's arrays, so these must
 * stay until the process ends.  dl_backend_take_kept_memory() returns whether it was
 * called on this thread since the last such query.  A work has the result in
 * `keeps_memory`; after dl_group_run() the caller queries it. */
void dl_backend_keep_memory(void);
bool dl_backend_take_kept_memory(void);

/* Makes a backend and meets the other ranks, unless the options have an origin, or the
 * backend meets them with its first operation. */
typedef dl_status (*dl_backend_new_fn)(const dl_backend_options *options,
                                       dl_deadline deadline, dl_backend **backend);

/* A backend by its name: which memory it serves, and how it is made. */
typedef struct dl_backend_kind {
    const char *name;
    /* NULL if the backend does not serve the CPU's memory. */
    dl_backend_new_fn make;
    /* Informs the other ranks that this one fails before it calls `make`, as `make`
     * itself does for its own failures; or NULL. */
    void (*refuse)(const dl_backend_options *options);
    /* Makes the backend of a group's arrays on devices, whose operations are ordered by
     * streams (dl_backend_ops.enqueue); NULL if it serves none. */
    dl_backend_new_fn make_on_device;
} dl_backend_kind;

/* Returns the label of a rank in a backend's error texts, such as "group 0, rank 1 of 4
 * on node7", which the caller frees with free(3); NULL if there is no memory.  It names
 * the host because errors of several ranks are read side by side. */
char *dl_label_new(const char *group_name, int rank, int size);

#endif
