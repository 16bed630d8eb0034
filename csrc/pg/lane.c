/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/lane.h"

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/blocked_threads.h"
#include "pg/lane_runner.h"

/* TAKEN: one thread has the turn, and nobody else wants it.  CONTENDED: the members
 * under the lock say who has the turn and who waits, and passing the turn takes the
 * lock.  Any other state is the address of a lone job. */
enum lane_state {
    FREE = 0,
    TAKEN = 1,
    CONTENDED = 2,
};

/* Every step that a lane takes without its lock is one such exchange. */
static bool
move(dl_lane *lane, uintptr_t from, uintptr_t to)
{
    return atomic_compare_exchange_strong(&lane->state, &from, to);
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
    dl_lane_runner *runner = atomic_load(&lane->runner);

    if (runner != NULL) {
        dl_lane_runner_stop(runner);
    }
    pthread_cond_destroy(&lane->moved);
    pthread_mutex_destroy(&lane->lock);
}

void
dl_lane_retire(dl_lane *lane)
{
    dl_lane_runner *runner = atomic_load(&lane->runner);

    if (runner != NULL) {
        dl_lane_runner_retire(runner);
    }
}

void
dl_lane_forget(dl_lane *lane)
{
    dl_lane_runner_forget(atomic_exchange(&lane->runner, NULL));
}

bool
dl_lane_try(dl_lane *lane)
{
    return move(lane, FREE, TAKEN);
}

bool
dl_lane_has_lone_job(const dl_lane *lane)
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

dl_job *
dl_lane_next_job(dl_lane *lane)
{
    if (dl_lane_has_lone_job(lane)) {
        contend_locked(lane);
        if (dl_list_is_empty(&lane->queue)) {
            settle_locked(lane);
        }
    }
    bool is_next =
        !lane->is_held && !dl_list_is_empty(&lane->queue) && first_of(lane)->is_job;

    return is_next ? DL_LIST_ENTRY(first_of(lane), dl_job, entry) : NULL;
}

void
dl_lane_run_unlock(dl_lane *lane, dl_job *job)
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
    dl_job *job = dl_lane_next_job(lane);

    if (job != NULL && !has_time_for(job, deadline)) {
        dl_lane_runner_expedite(atomic_load(&lane->runner));
        job = NULL;
    }
    if (job == NULL) {
        dl_blocked_look_at_lane(lane);
        return dl_condition_wait(&lane->moved, &lane->lock, deadline);
    }
    if (job != own) {
        dl_blocking_begin();
    }
    count_helped(lane);
    dl_lane_run_unlock(lane, job);
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
    if (!move(lane, TAKEN, FREE)) {
        pthread_mutex_lock(&lane->lock);
        pass_locked(lane);
        pthread_mutex_unlock(&lane->lock);
    }
}

static dl_status
queue_locked(dl_lane *lane, dl_job *job)
{
    dl_lane_runner *runner = atomic_load(&lane->runner);

    if (runner == NULL) {
        DL_TRY(dl_lane_runner_start(lane, &runner));
        atomic_store(&lane->runner, runner);
    }
    contend_locked(lane);
    dl_list_append(&lane->queue, &job->entry.node);
    if (dl_lane_runner_want(runner, job->queued_at)) {
        dl_lane_runner_wake(runner);
    }
    return DL_OK;
}

dl_status
dl_lane_submit(dl_lane *lane, dl_job *job)
{
    dl_lane_runner *runner = atomic_load(&lane->runner);
    int64_t queued_at = job->queued_at; /* a lone job may be gone after the exchange */

    job->entry.is_job = true;
    atomic_init(&job->is_over, false);
    if (runner != NULL && move(lane, FREE, (uintptr_t)job)) {
        if (dl_lane_runner_want(runner, queued_at)) {
            pthread_mutex_lock(&lane->lock);
            dl_lane_runner_wake(runner);
            pthread_mutex_unlock(&lane->lock);
        }
        return DL_OK;
    }
    pthread_mutex_lock(&lane->lock);
    dl_status status = queue_locked(lane, job);
    pthread_mutex_unlock(&lane->lock);
    return status;
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

    if (has_time_for(job, deadline) && move(lane, (uintptr_t)job, TAKEN)) {
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
    while ((job = dl_lane_next_job(lane)) != NULL) {
        dl_lane_run_unlock(lane, job);
        pthread_mutex_lock(&lane->lock);
    }
    pthread_mutex_unlock(&lane->lock);
}
