/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A process group: rank, size, sequence numbers, the backend that serves it, and its
 * first failure.  This is the interface of the folder to the layers above.  A group
 * that failed is broken: every later call returns the first cause at once.  Operations
 * of one group run one at a time, in the order of the calls; different groups are
 * independent of each other. */
#ifndef DISTLITE_PG_GROUP_H
#define DISTLITE_PG_GROUP_H

#include "base/deadline.h"
#include "base/status.h"
#include "pg/call.h"
#include "pg/work.h"
#include "store/store.h"

typedef struct dl_group dl_group;

typedef struct dl_group_options {
    const char *name;
    const char *backend; /* a name that dl_backend_find() knows, such as "cpu" */
    int rank;
    int size;
    int64_t timeout; /* nanoseconds; for construction and for each operation */
    /* NULL, or a group that has all ranks of the new one as members.  `parent_ranks`
     * holds their ranks in the parent, in the order of the new ranks. */
    dl_group *parent;
    const int *parent_ranks;
    /* The new group replaces the parent, which may have been aborted.  Only a successor
     * can be made out of an aborted group. */
    bool is_successor;
    /* The group meets nobody and moves no data, whatever its backend: it stands in for
     * one whose members are not known yet, and is to be aborted. */
    bool is_vacant;
} dl_group_options;

/* Makes a group and meets its other ranks through `store`, to which it takes a
 * reference.  With a parent of the same backend the ranks need not meet: the call
 * returns at once, and the first operation waits for the ranks that have not made the
 * group yet.  All members pass the same parent and the same name, which no other living
 * group of the parent has. */
dl_status dl_group_new(const dl_group_options *options, dl_store *store,
                       dl_group **group);

/* Informs the other members of a group that this rank cannot make it, with the thread's
 * last error as the reason; that error is kept.  dl_group_new() does so itself; this
 * function is for a caller that fails before it.  `store` may be NULL if there is a
 * parent.  Best effort. */
void dl_group_refuse(const dl_group_options *options, dl_store *store);

dl_group *dl_group_ref(dl_group *group);
void dl_group_unref(dl_group *group);

int dl_group_rank(const dl_group *group);
int dl_group_size(const dl_group *group);
const char *dl_group_name(const dl_group *group);
const char *dl_group_backend(const dl_group *group);
int64_t dl_group_timeout(const dl_group *group);
void dl_group_set_timeout(dl_group *group, int64_t timeout);

/* Returns DL_OK if the group is usable, DL_CLOSED after its end and in a forked child,
 * or otherwise the first failure. */
dl_status dl_group_admit(dl_group *group);

/* Returns whether `rank`, or every other rank for -1, is shown to be a process of this
 * job (dl_backend_ops.is_proved); true once the group is closed, since no data comes
 * from the rank any more.  May be called from any thread. */
bool dl_group_is_proved(dl_group *group, int rank);

/* Returns dl_backend_ops.has_ended, also of a group that is broken; false once it is
 * closed.  May be called from any thread. */
bool dl_group_has_ended(dl_group *group, int rank);

/* The group's timeout as a deadline that starts now. */
dl_deadline dl_group_deadline(const dl_group *group);
uint64_t dl_group_sequence(const dl_group *group); /* operations begun */

/* Sets the ranks that the members have in the job; they are copied.  Called once,
 * before other threads have the group. */
dl_status dl_group_set_global_ranks(dl_group *group, const int64_t *ranks);

/* Runs the collective `call->op` and waits for it.  Every rank calls the same one, in
 * the same order, with the same fingerprint.  DL_INVALID is returned before anything is
 * sent; DL_MISMATCH, DL_PEER_LOST and DL_TIMEOUT name the rank at fault and break the
 * group. */
dl_status dl_group_run(dl_group *group, const dl_call *call, dl_deadline deadline);

static inline dl_status
dl_group_barrier(dl_group *group, dl_deadline deadline)
{
    dl_call call = dl_call_barrier();

    return dl_group_run(group, &call, deadline);
}

/* A barrier over the store alone, which names the missing ranks.  The outcome is the
 * same on every rank, including ranks that come late, and a failure leaves the group as
 * it is.  With `waits_for_all` it waits until the deadline to name all ranks that are
 * missing; otherwise it names the first one, before the deadline if that rank is gone.
 * Every rank makes the same number of these calls. */
dl_status dl_group_monitored_barrier(dl_group *group, bool waits_for_all,
                                     dl_deadline deadline);

/* Returns true if dl_group_run() takes a few microseconds when no rank is late, and
 * otherwise calls dl_blocking_begin() (base/interrupt.h) before it waits. */
bool dl_group_is_brief(const dl_group *group, const dl_call *call);

/* The same for messages, with dl_group_post() and the functions that wait for them. */
bool dl_group_are_brief(const dl_group *group, const dl_call *messages, int count);

/* Queues the collective without waiting for it: checks and copies `call`, and gives the
 * caller a reference to the work.  The elements must stay in place until the work is
 * done.  If the call's guard fails, so does the operation, and the group breaks,
 * because the other ranks take part in it. */
dl_status dl_group_submit(dl_group *group, const dl_call *call, dl_deadline deadline,
                          dl_work **work);

/* The result of a message that was waited for. */
typedef struct dl_message_end {
    int source;        /* rank that the message came from */
    bool keeps_memory; /* see dl_work: the array must never be freed */
} dl_message_end;

/* Messages between two ranks: DL_SEND, DL_RECV or DL_RECV_ANY, matched by source and
 * tag in the order in which they were sent, and not ordered with collectives.  A send
 * is done when its receive has taken it.  A message shorter than the receive's array
 * fills its front.  DL_MISMATCH on both sides if it is longer or of another dtype.  No
 * failure breaks the group.  dl_group_exchange() waits for the message and fills in
 * `end` (unless NULL). */
dl_status dl_group_post(dl_group *group, const dl_call *call, dl_deadline deadline,
                        dl_work **work);
dl_status dl_group_exchange(dl_group *group, const dl_call *call, dl_deadline deadline,
                            dl_message_end *end);

/* Returns when a message ended whose work was left out: now, or when the call began,
 * which is not worth another reading of the clock if the message is small. */
int64_t dl_group_ended_at(const dl_call *message, dl_deadline deadline);

/* Begins several messages of arrays in the CPU's memory, in their order; works[i] is
 * that of calls[i].  If one is refused, none has begun; after any other failure, the
 * works of those that have not begun are NULL. */
dl_status dl_group_post_all(dl_group *group, const dl_call *calls, int count,
                            dl_deadline deadline, dl_work **works);

/* Begins several messages as dl_group_post_all() does, and waits for all of them.  The
 * sends come first in `calls`, so that no peer waits for a rank that waits itself.
 * After a failure, which is that of the first message, the others are withdrawn.
 * `ends[i]` is filled in for message `i`, its source only if it has come. */
dl_status dl_group_exchange_all(dl_group *group, const dl_call *calls, int count,
                                dl_deadline deadline, dl_message_end *ends);

/* Describes the message that a receive from `peer` (DL_ANY_RANK: any rank) with `tag`
 * (DL_ANY_TAG: any tag) would get.  Waits for one until the deadline, or checks once;
 * then `*is_found` is whether there is one. */
dl_status dl_group_probe(dl_group *group, int peer, int64_t tag, bool waits,
                         dl_deadline deadline, dl_probed *found, bool *is_found);

/* Checks a message as far as this rank can tell; both functions above do so first. */
dl_status dl_group_check_message(const dl_group *group, const dl_call *call);

/* Aborts the group: all waiters wake with DL_CANCELLED.  May be called from any thread;
 * bounded and idempotent.  Informs the ranks that wait for this one in a group made out
 * of this group, which this rank has not made. */
void dl_group_abort(dl_group *group, const char *reason);

/* Called after dl_group_abort(): waits, for a second at most, for the operations that run
 * or are queued, which write no array from then on.  Returns whether the group is open:
 * the connections of a closed one are gone, so that no group can be made out of it. */
bool dl_group_drain(dl_group *group);

/* Called before an orderly end: compares the calls in which ranks ran ahead of the
 * others with those of the ranks that reach them by the deadline.  DL_MISMATCH names
 * both sides.  Does nothing if the group is broken or another thread has the turn. */
dl_status dl_group_verify_calls(dl_group *group, dl_deadline deadline);

/* Called before dl_group_close(): waits until the peers have accepted what this rank has
 * sent them, until the deadline, or until they have accepted nothing for a second.
 * Returns DL_INTERRUPTED or DL_OK; does nothing where dl_group_verify_calls() does
 * nothing. */
dl_status dl_group_finish(dl_group *group, dl_deadline deadline);

/* Leaves the group in order: later calls fail with DL_CLOSED, and peers inside an
 * operation that needs this rank are told that it left. */
void dl_group_close(dl_group *group);

#endif
