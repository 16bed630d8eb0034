/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/lane_runner.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/thread.h"
#include "pg/blocked_threads.h"

/* How long a job waits for somebody to wait for it: more than a few small operations
 * take, less than anybody would call a delay.  It doubles from look to look, up to the
 * most, while others have run all jobs themselves: looking costs them more than it seems,
 * as on most machines a timer is set and interrupts for it. */
#define PATIENCE (50 * INT64_C(1000))
#define MOST_PATIENCE (16 * PATIENCE)

/* Awake after the last job, looking this often: sleeping deeply at once would make each
 * first job of a burst pay for a wake-up, looking more often would take a core. */
#define LINGER (5 * DL_MILLISECOND)
#define LOOK_EVERY (100 * INT64_C(1000))

struct dl_lane_runner {
    dl_lane *lane;
    pthread_t thread;
    pthread_cond_t wanted;
    _Atomic(int64_t) last_wanted;
    atomic_bool
        is_asleep; /* changed with the lane's lock held, which guards all below */
    int64_t patience;
    uint64_t helped;    /* as of the last look */
    bool is_in_a_hurry; /* until it has run a job */
    bool is_stopping;
    bool is_orphan; /* this thread only: it freed the lane itself */
};

/* With the lock held, which is dropped meanwhile.  A hurry cuts it short. */
static void
nap(dl_lane_runner *self, int64_t span)
{
    int64_t until = dl_now() + span;
    struct timespec time = {.tv_sec = until / DL_SECOND, .tv_nsec = until % DL_SECOND};

    (void)pthread_cond_clockwait(&self->wanted, &self->lane->lock, CLOCK_MONOTONIC,
                                 &time);
}

/* No lost wake-up: it says that it sleeps and then looks for a job once more; who queues
 * one does so and then looks for sleepers. */
static void
sleep_until_wanted(dl_lane_runner *self)
{
    atomic_store(&self->is_asleep, true);
    while (atomic_load(&self->is_asleep) && !self->is_stopping
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

/* One look.  False: the lane is gone. */
static bool
look(dl_lane_runner *self)
{
    dl_lane *lane = self->lane;
    int64_t now = dl_now();
    int64_t idle = now - atomic_load(&self->last_wanted);

    learn_patience(self);
    /* A lone job is the last that was queued, and is left where it is found quickest. */
    if (dl_lane_has_lone_job(lane) && idle < self->patience) {
        nap(self, self->patience - idle);
        return true;
    }
    dl_job *job = dl_lane_next_job(lane);
    if (job == NULL && !dl_list_is_empty(&lane->queue)) {
        /* Somebody has the turn, maybe for long; passing it on ends the wait. */
        dl_condition_wait(&lane->moved, &lane->lock, dl_deadline_after(-1));
    } else if (job == NULL && idle > LINGER) {
        sleep_until_wanted(self);
    } else if (job == NULL) {
        nap(self, self->patience > LOOK_EVERY ? self->patience : LOOK_EVERY);
    } else if (now - job->queued_at < self->patience && !self->is_in_a_hurry) {
        nap(self, self->patience - (now - job->queued_at));
    } else {
        self->is_in_a_hurry = false;
        dl_lane_run_unlock(lane, job);
        if (self->is_orphan) {
            return false;
        }
        pthread_mutex_lock(&lane->lock);
        atomic_store(&self->last_wanted, dl_now());
    }
    return true;
}

static void *
run(void *argument)
{
    dl_lane_runner *self = argument;

    dl_blocked_disown();
    /* The kernel's usual slack is as long as the patience. */
    prctl(PR_SET_TIMERSLACK, 1000UL);
    pthread_mutex_lock(&self->lane->lock);
    while (!self->is_stopping) {
        if (!look(self)) {
            free(self);
            return NULL;
        }
    }
    pthread_mutex_unlock(&self->lane->lock);
    return NULL;
}

dl_status
dl_lane_runner_start(dl_lane *lane, dl_lane_runner **runner)
{
    dl_lane_runner *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->lane = lane;
    atomic_init(&self->last_wanted, dl_now());
    atomic_init(&self->is_asleep, false);
    self->patience = PATIENCE;
    dl_status status = dl_thread_start(&self->thread, run, self);
    if (status != DL_OK) {
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
    atomic_store(&runner->is_asleep, false);
    pthread_cond_signal(&runner->wanted);
}

void
dl_lane_runner_hurry(dl_lane_runner *runner)
{
    if (!runner->is_in_a_hurry) {
        runner->is_in_a_hurry = true;
        dl_lane_runner_wake(runner);
    }
}

void
dl_lane_runner_stop(dl_lane_runner *runner)
{
    if (pthread_equal(pthread_self(), runner->thread)) {
        pthread_detach(runner->thread);
        runner->is_orphan = true;
        return;
    }
    pthread_mutex_lock(&runner->lane->lock);
    runner->is_stopping = true;
    pthread_cond_signal(&runner->wanted);
    pthread_cond_broadcast(&runner->lane->moved);
    pthread_mutex_unlock(&runner->lane->lock);
    pthread_join(runner->thread, NULL);
    pthread_cond_destroy(&runner->wanted);
    free(runner);
}

void
dl_lane_runner_forget(dl_lane_runner *runner)
{
    free(runner);
}
