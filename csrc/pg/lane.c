/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/lane.h"

#include <stdlib.h>
#include <sys/prctl.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/record/blocked_threads.h"

/* How long the lane's thread leaves a queued job to a thread that may wait for it:
 * longer than a few small operations take, and too short to be noticed as a delay.  It
 * doubles with each inspection of the queue, up to MOST_PATIENCE, while other threads
 * run all jobs themselves.  An inspection costs those threads more than it seems,
 * because on most machines it sets a timer that interrupts them. */
#define PATIENCE (50 * INT64_C(1000))
#define MOST_PATIENCE (16 * PATIENCE)

/* The time that the thread stays awake after the last job, and the interval at which it
 * inspects the queue.  Sleeping at once would make the first job of each burst pay for
 * a wake-up, and a shorter interval would occupy a core. */
#define LINGER (5 * DL_MILLISECOND)
#define LOOK_EVERY (100 * INT64_C(1000))

/* The time that runner_retire() gives a running job before it detaches the thread. */
#define RETIREMENT DL_SECOND

/* TAKEN: one thread has the turn, and nobody else wants it.  CONTENDED: the members
 * under the lock say who has the turn and who waits, and passing the turn takes the
 * lock.  Any other state is the address of a lone job. */
enum lane_state {
    FREE = 0,
    TAKEN = 1,
    CONTENDED = 2,
};

/* A lane's own thread, which runs the jobs that nobody waits for.  It leaves a job that
 * was just queued some time to be waited for, and stays awake for a while after the
 * last one, so a program that queues and waits in a loop neither competes with it nor
 * pays for waking it. */
typedef struct dl_lane_runner {
    dl_lane *lane;
    pthread_t thread;
    pthread_cond_t wanted;
    _Atomic(int64_t) last_wanted;
    /* changed with the lane's lock held, which guards all members below */
    atomic_bool is_asleep;
    int64_t patience;
    uint64_t helped;   /* as of the last inspection */
    bool is_expedited; /* it leaves no job to others until none is left */
    bool is_stopping;
    bool has_lost_lane; /* this thread only: one of its jobs freed the lane */
    bool has_thread;
    bool is_retiring; /* the thread ends as soon as nothing is queued */
    bool is_detached; /* it ends detached: nobody joins it */
    bool has_ended;   /* it has left its loop */
} lane_runner;

/* All changes of a lane's state without its lock are made by this exchange. */
static bool
change_state(dl_lane *lane, uintptr_t from, uintptr_t to)
{
    return atomic_compare_exchange_strong(&lane->state, &from, to);
}

/* Returns true if one job is queued and nobody else wants the turn.  Needs no lock. */
static bool
has_lone_job(const dl_lane *lane)
{
    return atomic_load(&lane->state) > CONTENDED;
}

/* After this, nobody takes or passes the turn without the lock. */
static void
contend_locked(dl_lane *lane)
{
    uintptr_t before = atomic_exchange(&lane->state, CONTENDED);

    if (before != CONTENDED) {
        lane->is_held = before == TAKEN;
    }
    if (before > CONTENDED) {
        dl_list_append(&lane->queue, &((dl_job *)before)->entry.node);
    }
}

static dl_lane_entry *
first_of(const dl_lane *lane)
{
    return DL_LIST_ENTRY(lane->queue.next, dl_lane_entry, node);
}

static void
pass_locked(dl_lane *lane)
{
    lane->is_held = false;
    if (dl_list_is_empty(&lane->queue)) {
        atomic_store(&lane->state, FREE);
    } else if (!first_of(lane)->is_job) {
        first_of(lane)->has_turn = true;
        dl_list_remove(&first_of(lane)->node);
        lane->is_held = true;
    }
    pthread_cond_broadcast(&lane->moved);
}

/* Grants or frees a turn that nobody passed on: the thread that wanted it gave up, or
 * the state became contended while the turn was free. */
static void
settle_locked(dl_lane *lane)
{
    if (atomic_load(&lane->state) == CONTENDED && !lane->is_held) {
        pass_locked(lane);
    }
}

/* Returns the job that may run now, the first in the queue if nobody has the turn;
 * otherwise NULL.  Called with the lock held, like the next one. */
static dl_job *
next_job(dl_lane *lane)
{
    if (has_lone_job(lane)) {
        contend_locked(lane);
        if (dl_list_is_empty(&lane->queue)) {
            settle_locked(lane);
        }
    }
    bool is_next =
        !lane->is_held && !dl_list_is_empty(&lane->queue) && first_of(lane)->is_job;

    return is_next ? DL_LIST_ENTRY(first_of(lane), dl_job, entry) : NULL;
}

/* Runs the job and releases it; returns without the lane's lock. */
static void
run_unlock(dl_lane *lane, dl_job *job)
{
    dl_list_remove(&job->entry.node);
    lane->is_held = true;
    pthread_mutex_unlock(&lane->lock);
    job->run(job);
    pthread_mutex_lock(&lane->lock);
    atomic_store(&job->is_over, true);
    pass_locked(lane);
    pthread_mutex_unlock(&lane->lock);
    /* May free the lane's owner, so the lane is not touched after it. */
    job->release(job);
}

/* Sleeps for `span`, or until runner_expedite().  Called with the lock held,
 * which is released meanwhile. */
static void
nap(lane_runner *self, int64_t span)
{
    (void)dl_condition_wait_until(&self->wanted, &self->lane->lock, dl_now() + span);
}

/* No wake-up is lost: the thread sets is_asleep and then checks for a job once more,
 * while a submitter queues its job and then reads is_asleep. */
static void
sleep_until_wanted(lane_runner *self)
{
    atomic_store(&self->is_asleep, true);
    while (atomic_load(&self->is_asleep) && !self->is_stopping && !self->is_retiring
           && !has_lone_job(self->lane)) {
        pthread_cond_wait(&self->wanted, &self->lane->lock);
    }
    atomic_store(&self->is_asleep, false);
}

static void
learn_patience(lane_runner *self)
{
    uint64_t helped = atomic_load_explicit(&self->lane->helped, memory_order_relaxed);
    bool is_needless = helped != self->helped;

    self->helped = helped;
    self->patience = is_needless ? 2 * self->patience : PATIENCE;
    self->patience = self->patience < MOST_PATIENCE ? self->patience : MOST_PATIENCE;
}

/* Inspects the queue once, and runs a job or waits for one.  Returns false if the lane
 * is gone. */
static bool
serve_once(lane_runner *self)
{
    dl_lane *lane = self->lane;
    int64_t now = dl_now();
    int64_t idle = now - atomic_load(&self->last_wanted);

    learn_patience(self);
    int64_t patience = self->is_expedited ? INT64_MIN : self->patience;
    /* A lone job was queued at last_wanted.  It is left in the state word, where a
     * thread that waits for it takes it without the lock. */
    if (has_lone_job(lane) && idle < patience) {
        nap(self, patience - idle);
        return true;
    }
    dl_job *job = next_job(lane);
    if (dl_list_is_empty(&lane->queue)) {
        self->is_expedited = false;
    }
    if (job == NULL && !dl_list_is_empty(&lane->queue)) {
        /* The turn is taken, maybe for long; passing it on signals `moved`. */
        dl_condition_wait(&lane->moved, &lane->lock, dl_deadline_after(-1));
    } else if (job == NULL && idle > LINGER) {
        sleep_until_wanted(self);
    } else if (job == NULL) {
        nap(self, self->patience > LOOK_EVERY ? self->patience : LOOK_EVERY);
    } else if (now - job->queued_at < patience) {
        nap(self, patience - (now - job->queued_at));
    } else {
        run_unlock(lane, job);
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
has_jobs(const lane_runner *self)
{
    return has_lone_job(self->lane) || !dl_list_is_empty(&self->lane->queue);
}

/* Resets the members of a thread that has ended, so that the next job starts another
 * one.  Called with the lock held. */
static void
forget_thread(lane_runner *self)
{
    self->has_thread = false;
    self->is_retiring = false;
    self->is_detached = false;
    atomic_store(&self->is_asleep, true);
    pthread_cond_broadcast(&self->lane->moved);
}

static void *
serve(void *argument)
{
    lane_runner *self = argument;

    dl_blocked_mark_internal();
    /* The kernel's default timer slack, 50 us, is as long as PATIENCE. */
    prctl(PR_SET_TIMERSLACK, 1000UL);
    pthread_mutex_lock(&self->lane->lock);
    while (!self->is_stopping && (!self->is_retiring || has_jobs(self))) {
        if (!serve_once(self)) {
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
start_thread(lane_runner *self)
{
    self->has_ended = false;
    atomic_store(&self->is_asleep, false);
    DL_TRY(dl_thread_start(&self->thread, serve, self));
    self->has_thread = true;
    return DL_OK;
}

/* Starts the lane's thread.  Called with the lock held, like runner_wake()
 * and runner_expedite(). */
static dl_status
runner_start(dl_lane *lane, lane_runner **runner)
{
    lane_runner *self = calloc(1, sizeof *self);

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

/* Notes that a job was queued.  Returns true if runner_wake() must be called. */
static bool
runner_want(lane_runner *runner, int64_t queued_at)
{
    atomic_store_explicit(&runner->last_wanted, queued_at, memory_order_relaxed);
    return atomic_load(&runner->is_asleep);
}

static void
runner_wake(lane_runner *runner)
{
    /* If no thread can be started, the job is left to those who wait for it. */
    if (!runner->has_thread && !runner->is_stopping) {
        (void)start_thread(runner);
        return;
    }
    atomic_store(&runner->is_asleep, false);
    pthread_cond_signal(&runner->wanted);
}

/* Makes the thread run the queued jobs at once: nobody else is going to. */
static void
runner_expedite(lane_runner *runner)
{
    if (!runner->is_expedited) {
        runner->is_expedited = true;
        runner_wake(runner);
    }
}

static void
detach(lane_runner *self)
{
    if (!self->is_detached) {
        self->is_detached = true;
        pthread_detach(self->thread);
    }
}

/* Joins the thread if it ends within RETIREMENT; returns false if it still runs a job.
 * Called with the lock held, which is released meanwhile. */
static bool
join_for_a_while(lane_runner *self)
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

/* Ends the thread once nothing is queued, and waits for its end, except on that thread
 * itself or if a job takes longer than a second.  A later job starts another thread.
 * Called without the lock. */
static void
runner_retire(lane_runner *runner)
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
        /* A job may have been queued after the thread's last inspection. */
        if (!runner->has_thread && has_jobs(runner)) {
            (void)start_thread(runner);
        }
    }
    pthread_mutex_unlock(&lane->lock);
}

/* Waits for the thread's end, unless called on that thread, and frees the runner.
 * Called without the lock. */
static void
runner_stop(lane_runner *runner)
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
dl_lane_init(dl_lane *lane)
{
    *lane = (dl_lane){
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    dl_condition_init(&lane->moved);
    atomic_init(&lane->state, FREE);
    atomic_init(&lane->helped, 0);
    atomic_init(&lane->runner, NULL);
    dl_list_init(&lane->queue);
}

void
dl_lane_fini(dl_lane *lane)
{
    lane_runner *runner = atomic_load(&lane->runner);

    if (runner != NULL) {
        runner_stop(runner);
    }
    pthread_cond_destroy(&lane->moved);
    pthread_mutex_destroy(&lane->lock);
}

void
dl_lane_retire(dl_lane *lane)
{
    lane_runner *runner = atomic_load(&lane->runner);

    if (runner != NULL) {
        runner_retire(runner);
    }
}

void
dl_lane_forget(dl_lane *lane)
{
    free(atomic_exchange(&lane->runner, NULL));
}

bool
dl_lane_try(dl_lane *lane)
{
    return change_state(lane, FREE, TAKEN);
}

static void
count_helped(dl_lane *lane)
{
    uint64_t helped = atomic_load_explicit(&lane->helped, memory_order_relaxed);

    /* Not an atomic increment: only the thread that has the turn, or is
     * about to, counts. */
    atomic_store_explicit(&lane->helped, helped + 1, memory_order_relaxed);
}

/* Runs a lone job, with the turn and without the lock. */
static void
run_lone(dl_lane *lane, dl_job *job)
{
    count_helped(lane);
    job->run(job);
    atomic_store(&job->is_over, true);
    dl_lane_pass(lane);
    job->release(job);
}

/* A thread that begins a job stays with it until its end. */
static bool
has_time_for(const dl_job *job, dl_deadline deadline)
{
    return job->deadline.at <= deadline.at;
}

/* One step of waiting: runs a job if there is one to run and time for it, and otherwise
 * waits for a signal.  Called with the lock held, which is released meanwhile.  Jobs
 * other than `own` may take any time, so blocking is announced before them. */
static dl_status
help_or_wait(dl_lane *lane, const dl_job *own, dl_deadline deadline)
{
    dl_job *job = next_job(lane);

    if (job != NULL && !has_time_for(job, deadline)) {
        runner_expedite(atomic_load(&lane->runner));
        job = NULL;
    }
    if (job == NULL) {
        dl_status status = dl_condition_wait(&lane->moved, &lane->lock, deadline);
        pthread_mutex_unlock(&lane->lock);
        dl_blocked_look_at_lane(lane);
        pthread_mutex_lock(&lane->lock);
        return status;
    }
    if (job != own) {
        dl_blocking_begin();
    }
    count_helped(lane);
    run_unlock(lane, job);
    pthread_mutex_lock(&lane->lock);
    return DL_OK;
}

static dl_status
wait_for_turn(dl_lane *lane, dl_deadline deadline)
{
    dl_lane_entry self = {.is_job = false};
    dl_status status = DL_OK;

    dl_list_append(&lane->queue, &self.node);
    while (!self.has_turn && status == DL_OK) {
        status = help_or_wait(lane, NULL, deadline);
    }
    dl_blocked_end();
    if (!self.has_turn) {
        dl_list_remove(&self.node);
        /* The next in the queue may be a job that other threads can run now. */
        settle_locked(lane);
        return status;
    }
    if (status == DL_INTERRUPTED) {
        pass_locked(lane);
        return status;
    }
    return DL_OK; /* even if the deadline passed with it */
}

dl_status
dl_lane_take(dl_lane *lane, dl_deadline deadline)
{
    dl_status status = DL_OK;

    if (dl_lane_try(lane)) {
        return DL_OK;
    }
    pthread_mutex_lock(&lane->lock);
    contend_locked(lane);
    if (!lane->is_held && dl_list_is_empty(&lane->queue)) {
        lane->is_held = true;
    } else {
        status = wait_for_turn(lane, deadline);
    }
    pthread_mutex_unlock(&lane->lock);
    return status;
}

void
dl_lane_pass(dl_lane *lane)
{
    if (!change_state(lane, TAKEN, FREE)) {
        pthread_mutex_lock(&lane->lock);
        pass_locked(lane);
        pthread_mutex_unlock(&lane->lock);
    }
}

static dl_status
queue_locked(dl_lane *lane, dl_job *job)
{
    lane_runner *runner = atomic_load(&lane->runner);

    if (runner == NULL) {
        DL_TRY(runner_start(lane, &runner));
        atomic_store(&lane->runner, runner);
    }
    contend_locked(lane);
    dl_list_append(&lane->queue, &job->entry.node);
    if (runner_want(runner, job->queued_at)) {
        runner_wake(runner);
    }
    return DL_OK;
}

dl_status
dl_lane_submit(dl_lane *lane, dl_job *job)
{
    lane_runner *runner = atomic_load(&lane->runner);
    int64_t queued_at = job->queued_at; /* a lone job may be gone after the exchange */

    job->entry.is_job = true;
    atomic_init(&job->is_over, false);
    if (runner != NULL && change_state(lane, FREE, (uintptr_t)job)) {
        if (runner_want(runner, queued_at)) {
            pthread_mutex_lock(&lane->lock);
            runner_wake(runner);
            pthread_mutex_unlock(&lane->lock);
        }
        return DL_OK;
    }
    pthread_mutex_lock(&lane->lock);
    dl_status status = queue_locked(lane, job);
    pthread_mutex_unlock(&lane->lock);
    return status;
}

void
dl_lane_expedite(dl_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    lane_runner *runner = atomic_load(&lane->runner);
    if (runner != NULL && has_jobs(runner)) {
        runner_expedite(runner);
    }
    pthread_mutex_unlock(&lane->lock);
}

/* Called with the lock held, and not for a lone job. */
static bool
has_begun(const dl_job *job)
{
    return job->entry.node.next == NULL;
}

/* Called with the lock held, which is released meanwhile. */
static void
expire(dl_lane *lane, dl_job *job)
{
    dl_list_remove(&job->entry.node);
    pthread_mutex_unlock(&lane->lock);
    job->expire(job);
    pthread_mutex_lock(&lane->lock);
    atomic_store(&job->is_over, true);
    pthread_cond_broadcast(&lane->moved);
}

/* As help_or_wait(), but ends at the job's own deadline as well until the job has
 * begun; from then on its `run` keeps that deadline. */
static dl_status
join_once(dl_lane *lane, dl_job *job, dl_deadline deadline, bool *has_expired)
{
    bool is_bound = !has_begun(job) && has_time_for(job, deadline);
    dl_status status = help_or_wait(lane, job, is_bound ? job->deadline : deadline);

    if (status != DL_TIMEOUT || !is_bound) {
        return status;
    }
    if (!has_begun(job)) {
        *has_expired = true;
        expire(lane, job);
    }
    return DL_OK;
}

dl_status
dl_lane_join(dl_lane *lane, dl_job *job, dl_deadline deadline)
{
    dl_status status = DL_OK;
    bool has_expired = false;

    if (has_time_for(job, deadline) && change_state(lane, (uintptr_t)job, TAKEN)) {
        run_lone(lane, job);
        return DL_OK;
    }
    pthread_mutex_lock(&lane->lock);
    contend_locked(lane);
    while (!atomic_load(&job->is_over) && status == DL_OK) {
        status = join_once(lane, job, deadline, &has_expired);
    }
    dl_blocked_end();
    settle_locked(lane);
    bool is_over = atomic_load(&job->is_over);
    pthread_mutex_unlock(&lane->lock);
    if (has_expired) {
        job->release(job);
    }
    return is_over && status != DL_INTERRUPTED ? DL_OK : status;
}

void
dl_lane_drain(dl_lane *lane)
{
    dl_job *job;

    pthread_mutex_lock(&lane->lock);
    while ((job = next_job(lane)) != NULL) {
        run_unlock(lane, job);
        pthread_mutex_lock(&lane->lock);
    }
    pthread_mutex_unlock(&lane->lock);
}
