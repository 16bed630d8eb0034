/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The seam between a group and the engine that moves its data: one function pointer per
 * collective.  A NULL entry is worded once, in collectives.c.  DL_UNSUPPORTED from any of
 * them promises that nothing was sent and that all ranks get it: the group stays whole. */
#ifndef DISTLITE_PG_BACKEND_H
#define DISTLITE_PG_BACKEND_H

#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"
#include "pg/arguments.h"
#include "pg/fingerprint.h"
#include "pg/guard.h"
#include "pg/origin.h"
#include "pg/work.h"
#include "store/store.h"

typedef struct dl_backend dl_backend;
typedef struct dl_region dl_region; /* pg/region.h */

/* What every operation carries, whatever it does. */
typedef struct dl_op_context {
    uint64_t sequence;          /* of the group, from 1 */
    dl_fingerprint fingerprint; /* compared with the other ranks' */
    dl_deadline deadline;
    /* Of an operation that was queued, where that was, empty if nobody wanted to know;
     * NULL: the caller's own thread knows (base/call_site.h). */
    const char *call_site;
    dl_record *record; /* what waits for it say where they wait; NULL: not recorded */
    /* Of an operation that nobody waited for: asked before elements are touched and after
     * every wait that may have been long.  NULL: the arrays stay where they are. */
    const dl_guard *guard;
} dl_op_context;

/* Whether the arrays are where they were; if not, the error names the operation. */
static inline dl_status
dl_op_look_again(const dl_op_context *op)
{
    dl_status status = dl_guard_check(op->guard);

    return status == DL_OK ? DL_OK
                           : dl_fail_while("%s", dl_op_type_name(op->fingerprint.op));
}

typedef struct dl_backend_ops {
    const char *name; /* "cpu", "nccl", ... */
    bool is_alone;    /* no operation ever needs another rank */
    dl_status (*all_reduce)(dl_backend *, const dl_op_context *,
                            const dl_all_reduce_args *);
    dl_status (*broadcast)(dl_backend *, const dl_op_context *,
                           const dl_broadcast_args *);
    dl_status (*barrier)(dl_backend *, const dl_op_context *);
    dl_status (*reduce)(dl_backend *, const dl_op_context *, const dl_reduce_args *);
    dl_status (*all_gather)(dl_backend *, const dl_op_context *,
                            const dl_all_gather_args *);
    dl_status (*gather)(dl_backend *, const dl_op_context *, const dl_gather_args *);
    dl_status (*scatter)(dl_backend *, const dl_op_context *, const dl_scatter_args *);
    dl_status (*reduce_scatter)(dl_backend *, const dl_op_context *,
                                const dl_reduce_scatter_args *);
    dl_status (*all_to_all)(dl_backend *, const dl_op_context *,
                            const dl_all_to_all_args *);
    /* Starts a DL_SEND or a receive, and does not wait; from any thread, apart from the
     * order of the others.  What fails later, fails in the work and leaves the group
     * whole. */
    dl_status (*post)(dl_backend *, dl_op_type, const dl_message_args *, dl_deadline,
                      dl_work **);
    /* DL_OK as far as is known, or why nothing more is to be expected of `rank`: it is
     * gone, or this rank was aborted.  Does not wait; from any thread.  NULL: it cannot
     * tell before an operation fails. */
    dl_status (*watch)(dl_backend *, int rank);
    /* DL_PEER_LOST: `rank`, or any other one for -1, has ended or has given up the group,
     * as is known without asking anybody; one that has left it in order is not lost.  Does
     * not wait; from any thread.  NULL: nothing is ever known. */
    dl_status (*lost)(dl_backend *, int rank);
    /* Memory that operations on it need not copy; from any thread.  NULL: there is no
     * better than any. */
    dl_status (*share)(dl_backend *, size_t, dl_region **);
    /* With the turn, before an orderly end: compares what was called with those ranks that
     * come to it by the deadline, where that was left for later.  NULL: nothing is. */
    dl_status (*settle)(dl_backend *, dl_deadline);
    /* Local, bounded, idempotent, from any thread: frees all waiters with `cause`; peers
     * that need this rank are told. */
    void (*abort)(dl_backend *, const dl_error *cause);
    /* The same for an orderly end: peers that still need this rank are told it left. */
    void (*leave)(dl_backend *);
    /* After abort or leave: no group will be made out of this one any more, and those who
     * wait for this rank in one that it has not made are told.  Idempotent, from any
     * thread.  NULL: nobody can be. */
    void (*renounce)(dl_backend *);
    /* After the last operation.  In a forked child it touches nothing shared. */
    void (*free)(dl_backend *);
} dl_backend_ops;

/* Embedded first in every backend. */
struct dl_backend {
    const dl_backend_ops *ops;
    /* An operation on fewer bytes takes a few microseconds if nobody is late, and
     * otherwise tells by dl_blocking_begin(); fixed after init.  0: none does. */
    size_t brief;
    bool spans_hosts; /* some ranks may be on other hosts; fixed after init */
    /* For groups made out of this one, unless NULL; fixed after init. */
    dl_backend_origin *origin;
    const int *origin_ranks; /* by rank, the ranks there; NULL: the same */
};

/* What a backend's constructor is given; borrowed for its call. */
typedef struct dl_backend_options {
    dl_store *store; /* already prefixed for this group */
    int rank;
    int size;
    const char *group_name;
    /* Of a group made out of another with the same backend, where the ranks are not to
     * meet anew; else NULL. */
    dl_backend_origin *origin;
    const int *origin_ranks; /* by rank */
    /* That group's name, if renouncing it is renouncing this one; else NULL. */
    const char *family;
} dl_backend_options;

/* Meets the other ranks. */
typedef dl_status (*dl_backend_new_fn)(const dl_backend_options *options,
                                       dl_deadline deadline, dl_backend **backend);

#endif
