/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The order of one group's operations: a turn that is handed on in the order of asking.
 * Threads ask for it and wait; jobs are asked for and left to whoever has time: a thread
 * that waits for them or behind them, or else, a little later, the lane's own thread.
 * So a job that is waited for at once costs no change of threads, and one that nobody
 * waits for runs all the same.  A job that has begun cannot change threads: a thread that
 * gives up earlier than the job does leaves it to the lane's own, and only waits.  Knows
 * nothing of groups or of what jobs do. */
#ifndef DISTLITE_PG_LANE_H
#define DISTLITE_PG_LANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "base/list.h"
#include "base/status.h"

/* Who stands in the queue: a thread, or a job. */
typedef struct dl_lane_entry {
    dl_list node;
    bool is_job;
    bool has_turn; /* threads; guarded by the lane's lock */
} dl_lane_entry;

typedef struct dl_job {
    dl_lane_entry entry;  /* in no queue once it has begun */
    int64_t queued_at;    /* by whoever submits it, as the next */
    dl_deadline deadline; /* its own, which it keeps to whichever thread runs it */
    atomic_bool is_over;
    /* With the turn, without locks, on any thread; once. */
    void (*run)(struct dl_job *job);
    /* In place of `run`, without the turn, on a thread that waits for the job: its
     * deadline has passed before its turn has come. */
    void (*expire)(struct dl_job *job);
    /* After `is_over` has been set: the lane knows the job no more. */
    void (*release)(struct dl_job *job);
} dl_job;

struct dl_lane_runner;

typedef struct dl_lane {
    /* Nobody's, somebody's, contended; or the address of the one job that was asked for
     * while nobody else asks: then it takes no lock to queue it and to run it. */
    atomic_uintptr_t state;
    _Atomic(uint64_t) helped;                /* jobs run by those who waited */
    _Atomic(struct dl_lane_runner *) runner; /* from the first job on */
    pthread_mutex_t lock;
    /* guarded by lock */
    bool is_held; /* while the state is contended */
    dl_list queue;
    pthread_cond_t moved; /* the turn was passed, or a job ended */
} dl_lane;

void dl_lane_init(dl_lane *lane);

/* Nobody has the turn or waits for it.  Ends the lane's thread; may be called on it. */
void dl_lane_fini(dl_lane *lane);

/* Ends the lane's thread, as dl_lane_runner_retire() says; a later job starts another. */
void dl_lane_retire(dl_lane *lane);

/* In a forked child, which has no such thread. */
void dl_lane_forget(dl_lane *lane);

/* DL_TIMEOUT (no text written) or DL_INTERRUPTED: not taken.  Two atomic operations when
 * nobody else asks; runs the jobs queued before, if their deadlines are not later. */
dl_status dl_lane_take(dl_lane *lane, dl_deadline deadline);

/* Does not wait. */
bool dl_lane_try(dl_lane *lane);

void dl_lane_pass(dl_lane *lane);

/* Queues a job, which stays in place until its release.  One atomic operation when nobody
 * else asks, and two to join it then. */
dl_status dl_lane_submit(dl_lane *lane, dl_job *job);

/* Until the job is over, running what comes before it and itself where nobody does yet,
 * but nothing whose deadline is later than the one that this wait keeps to.  A job whose
 * own deadline passes before its turn has come is expired.  DL_TIMEOUT (no text written):
 * it is not over, and goes on.  DL_INTERRUPTED: it goes on, or has ended just now; an
 * interrupt is reported once, so the end does not hide it. */
dl_status dl_lane_join(dl_lane *lane, dl_job *job, dl_deadline deadline);

/* Runs all jobs that nobody has begun. */
void dl_lane_drain(dl_lane *lane);

#endif
