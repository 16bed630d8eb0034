/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A lane's own thread, which runs the jobs that nobody waits for.  It gives a job that
 * was just queued some time to be waited for, and stays awake for a while after the last
 * one, so that a program which queues and waits in a loop neither meets it nor pays for
 * waking it. */
#ifndef DISTLITE_PG_LANE_RUNNER_H
#define DISTLITE_PG_LANE_RUNNER_H

#include "pg/lane.h"

typedef struct dl_lane_runner dl_lane_runner;

/* A job has been queued.  True: somebody must wake it. */
bool dl_lane_runner_want(dl_lane_runner *runner, int64_t queued_at);

/* Whether one job is queued, and nobody asks for anything else. */
bool dl_lane_has_lone_job(const dl_lane *lane);

/* The next five with the lane's lock held. */
dl_status dl_lane_runner_start(dl_lane *lane, dl_lane_runner **runner);
void dl_lane_runner_wake(dl_lane_runner *runner);

/* What is queued is waited for by a thread that leaves it to this one. */
void dl_lane_runner_hurry(dl_lane_runner *runner);

/* The job that may run now: the queue's first, if nobody has the turn. */
dl_job *dl_lane_next_job(dl_lane *lane);

/* Runs it, and gives the lock back. */
void dl_lane_run_unlock(dl_lane *lane, dl_job *job);

/* Without the lock: ends the thread once nothing is queued, and waits for that unless
 * called on that thread, or a job takes longer than a second.  A later job starts another
 * one. */
void dl_lane_runner_retire(dl_lane_runner *runner);

/* Without the lock.  Waits for the thread's end, unless called on that thread. */
void dl_lane_runner_stop(dl_lane_runner *runner);

/* In a forked child. */
void dl_lane_runner_forget(dl_lane_runner *runner);

#endif
