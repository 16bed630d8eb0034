/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/lane_runner.h"

#include <stdlib.h>
#include <sys/prctl.h>

#include "base/thread.h"
#include "pg/blocked_threads.h"

/* The time that a job is left for somebody to wait for it: longer than a few small
 * operations take, and too short to be noticed as a delay.  It doubles from look
 * to look up to MOST_PATIENCE while other threads have run all jobs themselves.
 * Each look costs those threads more than it seems, as on most machines it sets a
 * timer that interrupts. */
#define PATIENCE (50 * INT64_C(1000))
#define MOST_PATIENCE (16 * PATIENCE)

/* The time that the thread stays awake after the last job, and the interval of its
 * looks.  Sleeping at once would make the first job of each burst pay for a wake-up,
 * and looking more often would occupy a core. */
#define LINGER (5 * DL_MILLISECOND)
#define LOOK_EVERY (100 * INT64_C(1000))

struct dl_lane_runner {
    dl_lane *lane;
    pthread_t thread;
    pthread_cond_t wanted;
    _Atomic(int64_t) last_wanted;
    /* changed with the lane's lock held, which guards all members below */
    atomic_bool is_asleep;
    int64_t patience;
    uint64_t helped;   /* as of the last look */
    bool is_expedited; /* cleared when it runs a job */
    bool is_stopping;
    bool has_lost_lane; /* this thread only: one of its jobs freed the lane */
    bool has_thread;
    bool is_retiring; /* the thread ends as soon as nothing is queued */
    bool is_detached; /* it ends detached: nobody joins it */
    bool has_ended;   /* it has left its loop */
};

/* The time that dl_lane_runner_retire() gives a running job before it
 * detaches the thread. */
#define RETIREMENT DL_SECOND

/* Sleeps for `span`, or until dl_lane_runner_expedite().  Called with the lock held,
 * which is released meanwhile. */
static void
nap(dl_lane_runner *self, int64_t span)
{
    (void)dl_condition_wait_until(&self->wanted, &self->lane->lock, dl_now() + span);
}

/* No wake-up is lost: the thread sets is_asleep and then looks for a job once more,
 * while a submitter queues its job and then looks at is_asleep. */
static void
sleep_until_wanted(dl_lane_runner *self)
{
    atomic_store(&self->is_asleep, true);
    while (atomic_load(&self->is_asleep) && !self->is_stopping && !self->is_retiring
           && !dl_lane_has_lone_job(self->lane)) {
        pthread_cond_wait(&self->wanted, &self->lane->lock);
    }
    atomic_store(&self->is_asleep, false);
}

static void
learn_patience(dl_lane_runner *self)
{
    uint64_t helped = atomic_load_explicit(&self->lane->helped, memory_order_relaxed);
    bool is_needless = helped != self->helped;

    self->helped = helped;
    self->patience = is_needless ? 2 * self->patience : PATIENCE;
    self->patience = self->patience < MOST_PATIENCE ? self->patience : MOST_PATIENCE;
}

/* Looks once for a job and runs or awaits it.  Returns false if the lane is gone. */
static bool
look(dl_lane_runner *self)
{
    dl_lane *lane = self->lane;
    int64_t now = dl_now();
    int64_t idle = now - atomic_load(&self->last_wanted);

    learn_patience(self);
    /* A lone job was queued at last_wanted.  It is left in the state word, where a
     * thread that waits for it takes it without the lock. */
    if (dl_lane_has_lone_job(lane) && idle < self->patience) {
        nap(self, self->patience - idle);
        return true;
    }
    dl_job *job = dl_lane_next_job(lane);
    if (job == NULL && !dl_list_is_empty(&lane->queue)) {
        /* The turn is taken, maybe for long; passing it on signals `moved`. */
        dl_condition_wait(&lane->moved, &lane->lock, dl_deadline_after(-1));
    } else if (job == NULL && idle > LINGER) {
        sleep_until_wanted(self);
    } else if (job == NULL) {
        nap(self, self->patience > LOOK_EVERY ? self->patience : LOOK_EVERY);
    } else if (now - job->queued_at < self->patience && !self->is_expedited) {
        nap(self, self->patience - (now - job->queued_at));
    } else {
        self->is_expedited = false;
        dl_lane_run_unlock(lane, job);
        if (self->has_lost_lane) {
            return false;
        }
        pthread_mutex_lock(&lane->lock);
        atomic_store(&self->last_wanted, dl_now());
    }
    return true;
}

/* Called with the lock held. */
static bool
has_jobs(const dl_lane_runner *self)
{
    return dl_lane_has_lone_job(self->lane) || !dl_list_is_empty(&self->lane->queue);
}

/* Resets the members of a thread that has ended, so that the next job starts another
 * one.  Called with the lock held. */
static void
forget_thread(dl_lane_runner *self)
{
    self->has_thread = false;
    self->is_retiring = false;
    self->is_detached = false;
    atomic_store(&self->is_asleep, true);
    pthread_cond_broadcast(&self->lane->moved);
}

static void *
run(void *argument)
{
    dl_lane_runner *self = argument;

    dl_blocked_mark_internal();
    /* The kernel's default timer slack, 50 us, is as long as PATIENCE. */
    prctl(PR_SET_TIMERSLACK, 1000UL);
    pthread_mutex_lock(&self->lane->lock);
    while (!self->is_stopping && (!self->is_retiring || has_jobs(self))) {
        if (!look(self)) {
            free(self);
            return NULL;
        }
    }
    self->has_ended = true;
    pthread_cond_broadcast(&self->lane->moved);
    if (self->is_detached) {
        forget_thread(self);
    }
    pthread_mutex_unlock(&self->lane->lock);
    return NULL;
}

/* Called with the lock held. */
static dl_status
start_thread(dl_lane_runner *self)
{
    self->has_ended = false;
    atomic_store(&self->is_asleep, false);
    DL_TRY(dl_thread_start(&self->thread, run, self));
    self->has_thread = true;
    return DL_OK;
}

dl_status
dl_lane_runner_start(dl_lane *lane, dl_lane_runner **runner)
{
    dl_lane_runner *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->lane = lane;
    dl_condition_init(&self->wanted);
    atomic_init(&self->last_wanted, dl_now());
    atomic_init(&self->is_asleep, false);
    self->patience = PATIENCE;
    dl_status status = start_thread(self);
    if (status != DL_OK) {
        pthread_cond_destroy(&self->wanted);
        free(self);
        return status;
    }
    *runner = self;
    return DL_OK;
}

bool
dl_lane_runner_want(dl_lane_runner *runner, int64_t queued_at)
{
    atomic_store_explicit(&runner->last_wanted, queued_at, memory_order_relaxed);
    return atomic_load(&runner->is_asleep);
}

void
dl_lane_runner_wake(dl_lane_runner *runner)
{
    /* If no thread can be started, the job is left to those who wait for it. */
    if (!runner->has_thread && !runner->is_stopping) {
        (void)start_thread(runner);
        return;
    }
    atomic_store(&runner->is_asleep, false);
    pthread_cond_signal(&runner->wanted);
}

void
dl_lane_runner_expedite(dl_lane_runner *runner)
{
    if (!runner->is_expedited) {
        runner->is_expedited = true;
        dl_lane_runner_wake(runner);
    }
}

static void
detach(dl_lane_runner *self)
{
    if (!self->is_detached) {
        self->is_detached = true;
        pthread_detach(self->thread);
    }
}

/* Joins the thread if it ends within RETIREMENT; returns false if it still runs a job.
 * Called with the lock held, which is released meanwhile. */
static bool
join_for_a_while(dl_lane_runner *self)
{
    dl_lane *lane = self->lane;
    int64_t until = dl_now() + RETIREMENT;

    while (!self->has_ended && dl_now() < until) {
        (void)dl_condition_wait_until(&lane->moved, &lane->lock, until);
    }
    if (self->has_ended) {
        pthread_mutex_unlock(&lane->lock);
        pthread_join(self->thread, NULL);
        pthread_mutex_lock(&lane->lock);
    }
    return self->has_ended;
}

void
dl_lane_runner_retire(dl_lane_runner *runner)
{
    dl_lane *lane = runner->lane;

    pthread_mutex_lock(&lane->lock);
    if (runner->has_thread && !runner->is_retiring) {
        runner->is_retiring = true;
        pthread_cond_signal(&runner->wanted);
        pthread_cond_broadcast(&lane->moved);
        if (pthread_equal(pthread_self(), runner->thread)) {
            detach(runner);
        } else if (join_for_a_while(runner)) {
            forget_thread(runner);
        } else {
            detach(runner);
        }
        /* A job may have been queued after the thread's last look. */
        if (!runner->has_thread && has_jobs(runner)) {
            (void)start_thread(runner);
        }
    }
    pthread_mutex_unlock(&lane->lock);
}

void
dl_lane_runner_stop(dl_lane_runner *runner)
{
    pthread_mutex_lock(&runner->lane->lock);
    if (runner->has_thread && pthread_equal(pthread_self(), runner->thread)) {
        detach(runner);
        runner->has_lost_lane = true;
        pthread_mutex_unlock(&runner->lane->lock);
        return;
    }
    runner->is_stopping = true;
    pthread_cond_signal(&runner->wanted);
    pthread_cond_broadcast(&runner->lane->moved);
    while (runner->has_thread && runner->is_detached) {
        pthread_cond_wait(&runner->lane->moved, &runner->lane->lock);
    }
    bool has_thread = runner->has_thread;
    pthread_mutex_unlock(&runner->lane->lock);
    if (has_thread) {
        pthread_join(runner->thread, NULL);
    }
    pthread_cond_destroy(&runner->wanted);
    free(runner);
}

void
dl_lane_runner_forget(dl_lane_runner *runner)
{
    free(runner);
}
