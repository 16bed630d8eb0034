/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/lane.h"

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/record/blocked_threads.h"

/* How long the progress thread leaves a queued job to a thread that may wait for it,
 * and the interval at which it inspects a lane that is in use.  Waking it for each job
 * instead would cost a program that queues and waits in a loop two context switches per
 * operation, several times what a small operation takes.  An inspection costs as much,
 * which is little in this time, and a job that starts so much later is no loss to a
 * program that computes meanwhile. */
#define PATIENCE (200 * INT64_C(1000))

/* What an operation that has timed out takes to find out why, and to tell other
 * ranks. */
#define LAST_WORDS (600 * DL_MILLISECOND)

/* The time that dl_lane_retire() gives a running job. */
#define RETIREMENT DL_SECOND

/* TAKEN: one thread has the turn, and nobody else wants it.  CONTENDED: the members
 * under the lock say who has the turn and who waits, and passing the turn takes the
 * lock.  Any other state is the address of a lone job. */
enum lane_state {
    FREE = 0,
    TAKEN = 1,
    CONTENDED = 2,
};

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
grant_free_turn_locked(dl_lane *lane)
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
            grant_free_turn_locked(lane);
        }
    }
    bool is_next =
        !lane->is_held && !dl_list_is_empty(&lane->queue) && first_of(lane)->is_job;

    return is_next ? DL_LIST_ENTRY(first_of(lane), dl_job, entry) : NULL;
}

/* Called by whoever takes the turn. */
static void
hold_until(dl_lane *lane, int64_t at)
{
    atomic_store_explicit(&lane->ends_at, at, memory_order_relaxed);
}

/* Runs a job that has the turn, or expires it if others had the turn for too long. */
static void
begin_job(dl_job *job)
{
    if (job->is_behind && dl_deadline_passed(job->deadline)) {
        job->expire(job);
    } else {
        job->run(job);
    }
}

/* Runs the job and releases it; returns without the lane's lock. */
static void
run_unlock(dl_lane *lane, dl_job *job)
{
    dl_list_remove(&job->entry.node);
    lane->is_held = true;
    hold_until(lane, job->deadline.at);
    pthread_mutex_unlock(&lane->lock);
    begin_job(job);
    pthread_mutex_lock(&lane->lock);
    atomic_store(&job->is_over, true);
    pass_locked(lane);
    pthread_mutex_unlock(&lane->lock);
    /* May free the lane's owner, so the lane is not touched after it. */
    job->release(job);
}

/* Called with the lock held. */
static bool
has_jobs(const dl_lane *lane)
{
    return has_lone_job(lane) || !dl_list_is_empty(&lane->queue);
}

/* Sleeps until wake_locked().  No wake-up is lost: the thread sets is_asleep and then
 * checks for a job once more, while a submitter queues its job and then reads
 * is_asleep.  Called with the lock held, which is released meanwhile, like the next
 * one. */
static void
sleep_until_wanted(dl_lane *lane)
{
    atomic_store(&lane->is_asleep, true);
    while (atomic_load(&lane->is_asleep) && !lane->is_retiring && !has_lone_job(lane)) {
        pthread_cond_wait(&lane->wanted, &lane->lock);
    }
    atomic_store(&lane->is_asleep, false);
}

/* Inspects the queue once, and runs a job or waits for one.  Sets lane->is_lost if the
 * job has freed the lane, and otherwise returns with the lock held. */
static void
serve_one_job(dl_lane *lane, const bool *is_lost)
{
    dl_job *job = next_job(lane);
    int64_t now = dl_now();

    if (job != NULL && (lane->is_expedited || now - job->queued_at >= PATIENCE)) {
        run_unlock(lane, job);
        if (!*is_lost) {
            pthread_mutex_lock(&lane->lock);
        }
    } else if (job != NULL) {
        (void)dl_condition_wait_until(&lane->wanted, &lane->lock,
                                      job->queued_at + PATIENCE);
    } else if (has_jobs(lane)) {
        /* The turn is taken, maybe for long; passing it on signals `moved`. */
        dl_condition_wait(&lane->moved, &lane->lock, dl_deadline_after(-1));
    } else {
        lane->is_expedited = false;
        if (atomic_exchange(&lane->is_used, false)) {
            (void)dl_condition_wait_until(&lane->wanted, &lane->lock, now + PATIENCE);
        } else {
            sleep_until_wanted(lane);
        }
    }
}

/* Returns whether the thread is to end: jobs that are queued from then on find
 * is_asleep set, and start another thread.  Called with the lock held. */
static bool
may_end(dl_lane *lane)
{
    if (!lane->is_retiring) {
        return false;
    }
    atomic_store(&lane->is_asleep, true);
    if (has_jobs(lane)) {
        atomic_store(&lane->is_asleep, false);
        return false;
    }
    return true;
}

static void *
run_lane_thread(void *argument)
{
    dl_lane *lane = argument;
    bool is_lost = false;

    dl_blocked_mark_internal();
    pthread_detach(pthread_self());
    pthread_mutex_lock(&lane->lock);
    lane->is_lost = &is_lost;
    while (!may_end(lane)) {
        serve_one_job(lane, &is_lost);
        if (is_lost) {
            return NULL;
        }
    }
    atomic_store(&lane->has_thread, false);
    lane->is_retiring = false;
    pthread_cond_broadcast(&lane->moved);
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

/* Called with the lock held. */
static bool
is_progress_thread(const dl_lane *lane)
{
    return atomic_load(&lane->has_thread)
           && pthread_equal(pthread_self(), lane->thread);
}

/* Starts the progress thread unless there is one.  Called with the lock held, like the
 * next two. */
static dl_status
start_locked(dl_lane *lane)
{
    if (atomic_load(&lane->has_thread)) {
        return DL_OK;
    }
    DL_TRY(dl_thread_start(&lane->thread, run_lane_thread, lane));
    atomic_store(&lane->is_asleep, false);
    atomic_store(&lane->has_thread, true);
    return DL_OK;
}

static void
wake_locked(dl_lane *lane)
{
    /* If no thread can be started, the job is left to those who wait for it. */
    (void)start_locked(lane);
    atomic_store(&lane->is_asleep, false);
    pthread_cond_signal(&lane->wanted);
}

/* Makes the thread run the queued jobs at once: nobody else is going to. */
static void
expedite_locked(dl_lane *lane)
{
    if (!lane->is_expedited) {
        lane->is_expedited = true;
        wake_locked(lane);
    }
}

void
dl_lane_init(dl_lane *lane)
{
    *lane = (dl_lane){
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    dl_condition_init(&lane->moved);
    dl_condition_init(&lane->wanted);
    atomic_init(&lane->is_asleep, true);
    dl_list_init(&lane->queue);
}

/* Ends the thread once nothing is queued, and waits for that until `until`, except on
 * the thread itself.  Called with the lock held, which is released meanwhile. */
static void
retire_locked(dl_lane *lane, int64_t until)
{
    lane->is_retiring = atomic_load(&lane->has_thread);
    pthread_cond_signal(&lane->wanted);
    pthread_cond_broadcast(&lane->moved);
    while (lane->is_retiring && !is_progress_thread(lane) && dl_now() < until) {
        (void)dl_condition_wait_until(&lane->moved, &lane->lock, until);
    }
}

void
dl_lane_fini(dl_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    if (is_progress_thread(lane)) {
        *lane->is_lost = true;
    } else {
        retire_locked(lane, INT64_MAX);
    }
    pthread_mutex_unlock(&lane->lock);
    pthread_cond_destroy(&lane->wanted);
    pthread_cond_destroy(&lane->moved);
    pthread_mutex_destroy(&lane->lock);
}

void
dl_lane_retire(dl_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    retire_locked(lane, dl_now() + RETIREMENT);
    pthread_mutex_unlock(&lane->lock);
}

bool
dl_lane_try(dl_lane *lane)
{
    if (!change_state(lane, FREE, TAKEN)) {
        return false;
    }
    hold_until(lane, INT64_MAX);
    return true;
}

/* Runs a lone job, with the turn and without the lock. */
static void
run_lone(dl_lane *lane, dl_job *job)
{
    hold_until(lane, job->deadline.at);
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
        expedite_locked(lane);
        job = NULL;
    }
    if (job == NULL) {
        dl_status status = dl_condition_wait(&lane->moved, &lane->lock, deadline);
        pthread_mutex_unlock(&lane->lock);
        dl_blocked_check_lane(lane);
        pthread_mutex_lock(&lane->lock);
        return status;
    }
    if (job != own) {
        dl_blocking_begin();
    }
    run_unlock(lane, job);
    pthread_mutex_lock(&lane->lock);
    return DL_OK;
}

/* Called when the deadline of an entry has passed: waits until the turn has been passed
 * on by those who have it and are past their deadlines, too.  Called with the lock
 * held, which is released meanwhile. */
static void
await_last_words(dl_lane *lane, dl_deadline deadline, const dl_lane_entry *self)
{
    dl_deadline last = dl_deadline_after(LAST_WORDS);
    bool is_ending = deadline.limit != 0 && lane->is_held;

    while (is_ending && self->node.next != NULL
           && (!lane->is_held || atomic_load(&lane->ends_at) <= deadline.at)) {
        if (next_job(lane) != NULL) {
            expedite_locked(lane);
        }
        is_ending = dl_condition_wait(&lane->moved, &lane->lock, last) == DL_OK;
    }
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
    if (status == DL_TIMEOUT) {
        await_last_words(lane, deadline, &self);
    }
    dl_blocked_end();
    if (!self.has_turn) {
        dl_list_remove(&self.node);
        /* The next in the queue may be a job that other threads can run now. */
        grant_free_turn_locked(lane);
        return status;
    }
    if (status == DL_OK && deadline.limit != 0 && dl_deadline_passed(deadline)) {
        status = DL_TIMEOUT;
    }
    if (status != DL_OK) {
        pass_locked(lane);
        return status;
    }
    hold_until(lane, deadline.at);
    return DL_OK;
}

dl_status
dl_lane_take(dl_lane *lane, dl_deadline deadline)
{
    dl_status status = DL_OK;

    if (change_state(lane, FREE, TAKEN)) {
        hold_until(lane, deadline.at);
        return DL_OK;
    }
    pthread_mutex_lock(&lane->lock);
    contend_locked(lane);
    if (!lane->is_held && dl_list_is_empty(&lane->queue)) {
        lane->is_held = true;
        hold_until(lane, deadline.at);
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

dl_status
dl_lane_submit(dl_lane *lane, dl_job *job)
{
    dl_status status = DL_OK;

    job->entry.is_job = true;
    job->is_behind = false;
    atomic_init(&job->is_over, false);
    atomic_store_explicit(&lane->is_used, true, memory_order_relaxed);
    bool is_alone =
        atomic_load(&lane->has_thread) && change_state(lane, FREE, (uintptr_t)job);
    if (is_alone && !atomic_load(&lane->is_asleep)) {
        return DL_OK;
    }
    pthread_mutex_lock(&lane->lock);
    if (!is_alone) {
        status = start_locked(lane);
    }
    if (!is_alone && status == DL_OK) {
        contend_locked(lane);
        job->is_behind = lane->is_held || !dl_list_is_empty(&lane->queue);
        dl_list_append(&lane->queue, &job->entry.node);
    }
    if (status == DL_OK && atomic_load(&lane->is_asleep)) {
        wake_locked(lane);
    }
    pthread_mutex_unlock(&lane->lock);
    return status;
}

void
dl_lane_expedite(dl_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    if (has_jobs(lane)) {
        expedite_locked(lane);
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
expire_job(dl_lane *lane, dl_job *job)
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
    await_last_words(lane, job->deadline, &job->entry);
    if (!has_begun(job)) {
        *has_expired = true;
        expire_job(lane, job);
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
    grant_free_turn_locked(lane);
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
