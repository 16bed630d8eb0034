/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The order of one group's operations: a turn that is granted in the order of requests.
 * Threads request the turn and wait for it.  Jobs are queued and run by a thread that
 * waits for the job, or behind it in the queue, or a little later by the lane's
 * progress thread.  A job that is waited for at once thus costs no context switch, and
 * one that nobody waits for runs all the same.  A job that has begun cannot change
 * threads, so a thread whose deadline is earlier than the job's leaves the job to the
 * progress thread and only waits.  Knows nothing of groups or of what jobs do. */
#ifndef DISTLITE_PG_LANE_H
#define DISTLITE_PG_LANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "base/list.h"
#include "base/status.h"

/* An entry of the queue: a waiting thread, or a job. */
typedef struct dl_lane_entry {
    dl_list node;
    bool is_job;
    bool has_turn; /* for threads; guarded by the lane's lock */
} dl_lane_entry;

typedef struct dl_job {
    dl_lane_entry entry;  /* in no queue once the job has begun */
    int64_t queued_at;    /* set by the submitter, like `deadline` */
    dl_deadline deadline; /* kept by `run` on whichever thread */
    atomic_bool is_over;
    bool is_behind; /* others had the turn, or were to have it, when it was queued */
    /* Called once on any thread, with the turn and without locks. */
    void (*run)(struct dl_job *job);
    /* Called in place of `run`, with or without the turn, if the deadline passes before
     * the turn has come to a job that was queued behind others. */
    void (*expire)(struct dl_job *job);
    /* Called after `is_over` was set: the lane does not touch the job any more. */
    void (*release)(struct dl_job *job);
} dl_job;

typedef struct dl_lane {
    /* Free, taken, contended, or the address of the only job, which was queued
     * while nobody else wanted the turn: such a lone job is queued and run
     * without the lock. */
    atomic_uintptr_t state;
    atomic_bool is_used;   /* a job was queued since the thread's last inspection */
    atomic_bool is_asleep; /* set by the progress thread, which the next job wakes */
    atomic_bool has_thread;
    _Atomic int64_t ends_at; /* deadline of the job or thread that has the turn */
    pthread_mutex_t lock;
    /* guarded by lock, which is also held to change the two above */
    bool is_held; /* valid while the state is contended */
    dl_list queue;
    pthread_cond_t moved;  /* signalled when the turn is passed or a job ends */
    pthread_cond_t wanted; /* what the progress thread sleeps on */
    pthread_t thread;
    bool *is_lost; /* on the thread's stack; set by a job of it that ends the lane */
    bool is_expedited; /* the thread leaves no job to others until none is left */
    bool is_retiring;  /* the thread ends as soon as nothing is queued */
} dl_lane;

void dl_lane_init(dl_lane *lane);

/* Ends the progress thread, on which it may be called, and frees what the lane owns.
 * Nobody may have the turn or wait for it.  Not called in a forked child, where the
 * thread does not run. */
void dl_lane_fini(dl_lane *lane);

/* Ends the progress thread once nothing is queued, and waits for its end, except on
 * that thread itself or if a job takes longer than a second.  A later job starts another
 * thread. */
void dl_lane_retire(dl_lane *lane);

/* Waits for the turn and takes it.  DL_TIMEOUT (no text written) and DL_INTERRUPTED:
 * not taken.  Costs two atomic operations together with dl_lane_pass() when nobody else
 * wants the turn.  Meanwhile it runs the jobs queued before it whose deadlines are not
 * later than `deadline`.  If whoever has the turn is past its own deadline as well, and so
 * about to say why, the call waits for that a little longer, like dl_lane_join(), but does
 * not take the turn then. */
dl_status dl_lane_take(dl_lane *lane, dl_deadline deadline);

/* Takes the turn if it is free, without a deadline; does not block. */
bool dl_lane_try(dl_lane *lane);

/* Passes the turn to the next thread in the queue, or frees it for the next job. */
void dl_lane_pass(dl_lane *lane);

/* Queues a job, which must stay in place until its release.  Costs one atomic operation
 * when nobody else wants the turn, and joining the job two more. */
dl_status dl_lane_submit(dl_lane *lane, dl_job *job);

/* Makes the progress thread run the jobs that are queued as soon as the turn is free,
 * instead of leaving them some time to threads that wait: for a job whose end somebody
 * asked to be told of, and does not wait for. */
void dl_lane_expedite(dl_lane *lane);

/* Waits until the job is over.  Meanwhile it runs the jobs before it, and the job
 * itself, if nobody does so yet, but none whose deadline is later than that of this
 * wait.  A job whose own deadline passes before its turn has come is expired.
 * DL_TIMEOUT (no text written): the job is not over, and goes on.  DL_INTERRUPTED: the
 * job goes on, or has just ended; an interrupt is reported once, so the end does not
 * hide it. */
dl_status dl_lane_join(dl_lane *lane, dl_job *job, dl_deadline deadline);

/* Runs queued jobs until a thread has the turn or is next in the queue. */
void dl_lane_drain(dl_lane *lane);

#endif
