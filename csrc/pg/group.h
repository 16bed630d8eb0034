/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A process group: rank, size, sequence numbers, the backend that serves it, and its
 * first failure.  The front door of this folder.  A group that failed is broken: every
 * later call repeats the first cause at once.  Operations of one group run one at a
 * time, in the order of the calls; different groups do not know each other. */
#ifndef DISTLITE_PG_GROUP_H
#define DISTLITE_PG_GROUP_H

#include "base/deadline.h"
#include "base/status.h"
#include "pg/arguments.h"
#include "pg/guard.h"
#include "pg/work.h"
#include "store/store.h"

typedef struct dl_group dl_group;

typedef struct dl_group_options {
    const char *name;    /* for error texts and store keys */
    const char *backend; /* "cpu" or "gloo" */
    int rank;
    int size;
    int64_t timeout; /* of construction and of every operation, nanoseconds */
    /* NULL, or a group that all ranks are in, with their ranks there, in the new order. */
    dl_group *parent;
    const int *parent_ranks;
    /* It goes on in the place of the parent, which may have been aborted.  Nothing else can
     * be made out of a group that was. */
    bool is_successor;
    bool is_compared; /* ranks compare what they call, at every debug level */
} dl_group_options;

/* Meets the other ranks through `store` (a reference is taken).  With a parent of the
 * same backend that is not necessary: it returns at once, and the first operation waits
 * for those who have not made it yet.  All members name the same parent and the same
 * name, which none of its living groups has. */
dl_status dl_group_new(const dl_group_options *options, dl_store *store,
                       dl_group **group);

/* Tells the other members of a group which this rank cannot come to make that, and why: the
 * thread's last error, which stays.  dl_group_new() does so itself; this is for who fails
 * before.  `store` may be NULL where there is a parent.  Best effort. */
void dl_group_refuse(const dl_group_options *options, dl_store *store);

dl_group *dl_group_ref(dl_group *group);
void dl_group_unref(dl_group *group);

int dl_group_rank(const dl_group *group);
int dl_group_size(const dl_group *group);
const char *dl_group_name(const dl_group *group);
const char *dl_group_backend(const dl_group *group);
dl_store *dl_group_store(const dl_group *group); /* borrowed */
int64_t dl_group_timeout(const dl_group *group);
void dl_group_set_timeout(dl_group *group, int64_t timeout);
/* The group's timeout as a deadline that starts now. */
dl_deadline dl_group_deadline(const dl_group *group);
uint64_t dl_group_sequence(const dl_group *group); /* operations begun so far */

/* What the ranks are called in the job; copied.  Once, before other threads have the
 * group. */
dl_status dl_group_set_global_ranks(dl_group *group, const int64_t *ranks);

/* Collectives: every rank calls the same one, in the same order, with the same
 * fingerprint.  DL_INVALID before anything is sent; DL_MISMATCH, DL_PEER_LOST and
 * DL_TIMEOUT name the rank at fault and break the group. */
dl_status dl_group_all_reduce(dl_group *group, const dl_all_reduce_args *args,
                              dl_deadline deadline);
dl_status dl_group_broadcast(dl_group *group, const dl_broadcast_args *args,
                             dl_deadline deadline);
dl_status dl_group_barrier(dl_group *group, dl_deadline deadline);
dl_status dl_group_reduce(dl_group *group, const dl_reduce_args *args,
                          dl_deadline deadline);
dl_status dl_group_all_gather(dl_group *group, const dl_all_gather_args *args,
                              dl_deadline deadline);
dl_status dl_group_gather(dl_group *group, const dl_gather_args *args,
                          dl_deadline deadline);
dl_status dl_group_scatter(dl_group *group, const dl_scatter_args *args,
                           dl_deadline deadline);
dl_status dl_group_reduce_scatter(dl_group *group, const dl_reduce_scatter_args *args,
                                  dl_deadline deadline);
dl_status dl_group_all_to_all(dl_group *group, const dl_all_to_all_args *args,
                              dl_deadline deadline);

/* A barrier that names who is missing, over the store alone: on every rank, of those that
 * come late too, the outcome is the same, and a failure leaves the group as it is.
 * `waits_for_all`: until the deadline, to name all that are missing; otherwise the first
 * one, sooner if it is gone.  Every rank makes the same number of these calls. */
dl_status dl_group_monitored_barrier(dl_group *group, bool waits_for_all,
                                     dl_deadline deadline);

/* Whether dl_group_run() takes a few microseconds if nobody is late, and otherwise tells
 * by dl_blocking_begin() (base/blocking.h). */
bool dl_group_is_brief(const dl_group *group, dl_op_type op, const void *args);

/* Any of them, by its number; `args` is the struct of `op`, NULL for the barrier. */
dl_status dl_group_run(dl_group *group, dl_op_type op, const void *args,
                       dl_deadline deadline);

/* The same without waiting: checks, copies `args`, queues, and gives the caller a
 * reference.  The elements must stay where they are until the work is done, which `guard`
 * (NULL: the caller sees to it) is asked before they are touched: it fails otherwise, and
 * breaks the group, since the other ranks count on this one. */
dl_status dl_group_submit_guarded(dl_group *group, dl_op_type op, const void *args,
                                  const dl_guard *guard, dl_deadline deadline,
                                  dl_work **work);

static inline dl_status
dl_group_submit(dl_group *group, dl_op_type op, const void *args, dl_deadline deadline,
                dl_work **work)
{
    return dl_group_submit_guarded(group, op, args, NULL, deadline, work);
}

/* What a caller who waited needs to know of a message. */
typedef struct dl_message_end {
    int source;        /* the rank that a received message came from */
    bool keeps_memory; /* see dl_work: the array must stay where it is for good */
} dl_message_end;

/* Messages between two ranks, DL_SEND, DL_RECV or DL_RECV_ANY, matched by source and tag
 * in the order in which they were sent; not ordered with collectives.  A send is done
 * when its receive has taken it.  DL_MISMATCH on both sides: it is too long for the
 * receive's array, or of another dtype; a shorter one fills the front.  No failure breaks
 * the group.  The second waits, and `end` (unless NULL) is then what is to be known of
 * it. */
dl_status dl_group_post(dl_group *group, dl_op_type op, const dl_message_args *args,
                        dl_deadline deadline, dl_work **work);
dl_status dl_group_exchange(dl_group *group, dl_op_type op, const dl_message_args *args,
                            dl_deadline deadline, dl_message_end *end);

/* Frees all waiters with DL_CANCELLED; from any thread, bounded, idempotent.  Groups that
 * others have made out of this one, and this rank has not, are given up as well. */
void dl_group_abort(dl_group *group, const char *reason);

/* Before that: compares what ranks called that went ahead of the others, with those that
 * come to it by the deadline.  DL_MISMATCH names both sides.  Does nothing in a group that
 * is broken, or whose turn another thread has. */
dl_status dl_group_settle(dl_group *group, dl_deadline deadline);

/* Leaves in order: later calls fail with DL_CLOSED.  Peers inside an operation that needs
 * this rank are told that it left. */
void dl_group_close(dl_group *group);

#endif
