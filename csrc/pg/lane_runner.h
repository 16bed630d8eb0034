/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A lane's own thread, which runs the jobs that nobody waits for.  It leaves a job that
 * was just queued some time to be waited for, and stays awake for a while after the
 * last one, so a program that queues and waits in a loop neither competes with it nor
 * pays for waking it. */
#ifndef DISTLITE_PG_LANE_RUNNER_H
#define DISTLITE_PG_LANE_RUNNER_H

#include "pg/lane.h"

typedef struct dl_lane_runner dl_lane_runner;

/* Notes that a job was queued.  Returns true if dl_lane_runner_wake()
 * must be called. */
bool dl_lane_runner_want(dl_lane_runner *runner, int64_t queued_at);

/* Returns true if one job is queued and nobody else wants the turn.  Needs no lock. */
bool dl_lane_has_lone_job(const dl_lane *lane);

/* Starts the lane's thread.  This function and the next four are called with the lane's
 * lock held. */
dl_status dl_lane_runner_start(dl_lane *lane, dl_lane_runner **runner);
void dl_lane_runner_wake(dl_lane_runner *runner);

/* Makes the thread run the next job at once: a thread waits for it that
 * cannot run it. */
void dl_lane_runner_expedite(dl_lane_runner *runner);

/* Returns the job that may run now, the first in the queue if nobody has the turn;
 * otherwise NULL. */
dl_job *dl_lane_next_job(dl_lane *lane);

/* Runs the job and releases it; returns without the lane's lock. */
void dl_lane_run_unlock(dl_lane *lane, dl_job *job);

/* Ends the thread once nothing is queued, and waits for its end, except on that thread
 * itself or if a job takes longer than a second.  A later job starts another thread.
 * Called without the lock. */
void dl_lane_runner_retire(dl_lane_runner *runner);

/* Waits for the thread's end, unless called on that thread, and frees the runner.
 * Called without the lock. */
void dl_lane_runner_stop(dl_lane_runner *runner);

/* Frees the runner in a forked child, which does not have the thread. */
void dl_lane_runner_forget(dl_lane_runner *runner);

#endif
