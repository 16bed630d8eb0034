/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/lane.h"
#include "ranks.h"

typedef struct shared {
    dl_lane lane;
    long count; /* guarded by the turn */
    int order[DL_RANKS_LIMIT];
} shared;

static void
add_many(int rank, int size, void *context)
{
    shared *all = context;

    (void)rank;
    (void)size;
    for (int i = 0; i < 5000; i++) {
        CHECK_OK(dl_lane_take(&all->lane, dl_deadline_after(10 * DL_SECOND)));
        all->count++;
        dl_lane_pass(&all->lane);
    }
}

CHECK_CASE(one_at_a_time)
{
    static shared all;

    dl_lane_init(&all.lane);
    dl_run_ranks(4, add_many, &all);
    CHECK_EQUAL(all.count, 20000);
    CHECK(dl_lane_try(&all.lane));
    CHECK(!dl_lane_try(&all.lane));
    dl_lane_pass(&all.lane);
    CHECK(dl_lane_try(&all.lane));
    dl_lane_fini(&all.lane);
}

static bool
is_queue_of(shared *all, int length)
{
    int count = 0;

    pthread_mutex_lock(&all->lane.lock);
    for (dl_list *node = all->lane.queue.next; node != &all->lane.queue;
         node = node->next) {
        count++;
    }
    pthread_mutex_unlock(&all->lane.lock);
    return count == length;
}

/* Each rank asks for its turn once the one before is in the queue. */
static void
ask_in_order(int rank, int size, void *context)
{
    shared *all = context;

    while (!is_queue_of(all, rank)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    if (rank == size - 1) {
        dl_lane_pass(&all->lane);
        return;
    }
    CHECK_OK(dl_lane_take(&all->lane, dl_deadline_after(10 * DL_SECOND)));
    all->order[all->count++] = rank;
    dl_lane_pass(&all->lane);
}

CHECK_CASE(in_the_order_of_asking)
{
    static shared all;

    dl_lane_init(&all.lane);
    CHECK(dl_lane_try(&all.lane));
    dl_run_ranks(6, ask_in_order, &all);
    CHECK_EQUAL(all.count, 5);
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(all.order[i], i);
    }
    dl_lane_fini(&all.lane);
}

CHECK_CASE(a_late_turn_is_a_timeout_and_leaves_the_queue)
{
    static shared all;
    int64_t start = dl_now();

    dl_lane_init(&all.lane);
    CHECK(dl_lane_try(&all.lane));
    CHECK_EQUAL(dl_lane_take(&all.lane, dl_deadline_after(70 * DL_MILLISECOND)),
                DL_TIMEOUT);
    CHECK(dl_now() - start >= 70 * DL_MILLISECOND);
    CHECK_EQUAL(dl_lane_take(&all.lane, dl_deadline_after(0)), DL_TIMEOUT);
    CHECK(is_queue_of(&all, 0));
    dl_lane_pass(&all.lane);
    CHECK_OK(dl_lane_take(&all.lane, dl_deadline_after(0)));
    dl_lane_fini(&all.lane);
}

static void
note_blocking(void *context)
{
    *(bool *)context = true;
}

CHECK_CASE(only_a_turn_that_is_taken_makes_a_thread_let_go_of_what_it_holds)
{
    static shared all;
    bool has_let_go = false;

    dl_lane_init(&all.lane);
    dl_blocking_set_hook(note_blocking, &has_let_go);
    CHECK_OK(dl_lane_take(&all.lane, dl_deadline_after(0)));
    CHECK(!has_let_go);
    CHECK_EQUAL(dl_lane_take(&all.lane, dl_deadline_after(0)), DL_TIMEOUT);
    CHECK(has_let_go);
    dl_blocking_set_hook(NULL, NULL);
    dl_lane_fini(&all.lane);
}

static void
give_up_often(int rank, int size, void *context)
{
    shared *all = context;

    (void)size;
    for (int i = 0; i < 300; i++) {
        dl_deadline deadline = dl_deadline_after((rank + i) % 3 * 20000);
        dl_status status = dl_lane_take(&all->lane, deadline);
        if (status == DL_OK) {
            all->count++;
            dl_lane_pass(&all->lane);
        }
        CHECK(status == DL_OK || status == DL_TIMEOUT);
    }
}

CHECK_CASE(giving_up_never_loses_the_turn)
{
    static shared all;

    dl_lane_init(&all.lane);
    dl_run_ranks(4, give_up_often, &all);
    CHECK(all.count > 0);
    CHECK_OK(dl_lane_take(&all.lane, dl_deadline_after(0)));
    dl_lane_fini(&all.lane);
}

static dl_status
interrupt(void)
{
    return dl_fail(DL_INTERRUPTED, "interrupted");
}

CHECK_CASE(an_interrupt_ends_the_wait)
{
    static shared all;

    dl_lane_init(&all.lane);
    CHECK(dl_lane_try(&all.lane));
    dl_interrupt_install(interrupt);
    CHECK_STATUS(dl_lane_take(&all.lane, dl_deadline_after(-1)), DL_INTERRUPTED);
    CHECK(is_queue_of(&all, 0));
    dl_lane_fini(&all.lane);
}

typedef struct counted_job {
    dl_job job;
    shared *all;
    int number;
    atomic_bool is_released;
} counted_job;

static void
count_run(dl_job *job)
{
    counted_job *self = (counted_job *)(void *)job;

    self->all->order[self->all->count++ % DL_RANKS_LIMIT] = self->number;
}

static void
note_release(dl_job *job)
{
    atomic_store(&((counted_job *)(void *)job)->is_released, true);
}

static void
submit_at(shared *all, counted_job *job, int number, void (*release)(dl_job *),
          int64_t queued_at)
{
    *job = (counted_job){
        .job = {.run = count_run,
                .release = release,
                .queued_at = queued_at,
                .deadline = dl_deadline_after(5 * DL_SECOND)},
        .all = all,
        .number = number,
    };
    CHECK_OK(dl_lane_submit(&all->lane, &job->job));
}

static void
submit_with(shared *all, counted_job *job, int number, void (*release)(dl_job *))
{
    submit_at(all, job, number, release, dl_now());
}

static void
submit(shared *all, counted_job *job, int number)
{
    submit_with(all, job, number, note_release);
}

static void
await_release(counted_job *job)
{
    dl_deadline deadline = dl_deadline_after(10 * DL_SECOND);

    while (!atomic_load(&job->is_released)) {
        CHECK(!dl_deadline_passed(deadline));
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
}

CHECK_CASE(jobs_run_in_order_before_later_requests)
{
    static shared all;
    counted_job jobs[3];

    dl_lane_init(&all.lane);
    for (int i = 0; i < 3; i++) {
        submit(&all, &jobs[i], i);
    }
    CHECK_OK(dl_lane_take(&all.lane, dl_deadline_after(10 * DL_SECOND)));
    CHECK_EQUAL(all.count, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(all.order[i], i);
        CHECK(jobs[i].job.is_over);
    }
    dl_lane_pass(&all.lane);
    for (int i = 0; i < 3; i++) {
        await_release(&jobs[i]);
    }
    dl_lane_fini(&all.lane);
}

CHECK_CASE(joining_runs_what_comes_before)
{
    static shared all;
    counted_job jobs[2];

    dl_lane_init(&all.lane);
    submit(&all, &jobs[0], 0);
    submit(&all, &jobs[1], 1);
    CHECK_OK(dl_lane_join(&all.lane, &jobs[1].job, dl_deadline_after(-1)));
    CHECK_OK(dl_lane_join(&all.lane, &jobs[0].job, dl_deadline_after(0)));
    CHECK_EQUAL(all.count, 2);
    await_release(&jobs[0]);
    await_release(&jobs[1]);
    dl_lane_fini(&all.lane);
}

/* Also after a pause in which its progress thread has gone to sleep. */
CHECK_CASE(a_job_without_a_waiter_runs)
{
    static shared all;
    counted_job job;

    dl_lane_init(&all.lane);
    for (int i = 0; i < 3; i++) {
        submit(&all, &job, i);
        await_release(&job);
        CHECK_OK(dl_sleep_until(dl_deadline_after(i * 10 * DL_MILLISECOND)));
    }
    CHECK_EQUAL(all.count, 3);
    dl_lane_fini(&all.lane);
}

/* The lane's thread would leave these jobs to waiting threads for a minute. */
CHECK_CASE(expedited_jobs_run_at_once)
{
    static shared all;
    counted_job jobs[3];
    int number = 0;

    dl_lane_init(&all.lane);
    for (int count = 1; count <= 3; count++) {
        for (int i = 0; i < count; i++) {
            submit_at(&all, &jobs[i], number++, note_release,
                      dl_now() + 60 * DL_SECOND);
        }
        CHECK_OK(dl_sleep_until(dl_deadline_after(10 * DL_MILLISECOND)));
        CHECK(!atomic_load(&jobs[0].is_released));
        dl_lane_expedite(&all.lane);
        for (int i = 0; i < count; i++) {
            await_release(&jobs[i]);
        }
    }
    CHECK_EQUAL(all.count, number);
    dl_lane_fini(&all.lane);
}

CHECK_CASE(an_expedited_job_waits_for_the_thread_that_has_the_turn)
{
    static shared all;
    counted_job job;

    dl_lane_init(&all.lane);
    dl_lane_expedite(&all.lane); /* nothing is queued */
    CHECK(dl_lane_try(&all.lane));
    submit_at(&all, &job, 0, note_release, dl_now() + 60 * DL_SECOND);
    dl_lane_expedite(&all.lane);
    CHECK_OK(dl_sleep_until(dl_deadline_after(20 * DL_MILLISECOND)));
    CHECK(!atomic_load(&job.is_released));
    dl_lane_pass(&all.lane);
    await_release(&job);
    dl_lane_fini(&all.lane);
}

CHECK_CASE(a_job_waits_for_the_thread_that_has_the_turn)
{
    static shared all;
    counted_job job;

    dl_lane_init(&all.lane);
    CHECK(dl_lane_try(&all.lane));
    submit(&all, &job, 0);
    CHECK_EQUAL(
        dl_lane_join(&all.lane, &job.job, dl_deadline_after(30 * DL_MILLISECOND)),
        DL_TIMEOUT);
    CHECK(!atomic_load(&job.is_released));
    dl_lane_pass(&all.lane);
    CHECK_OK(dl_lane_join(&all.lane, &job.job, dl_deadline_after(10 * DL_SECOND)));
    await_release(&job);
    dl_lane_fini(&all.lane);
}

static void
mix(int rank, int size, void *context)
{
    shared *all = context;
    counted_job job;

    (void)size;
    for (int i = 0; i < 2000; i++) {
        if ((rank + i) % 3 == 0) {
            CHECK_OK(dl_lane_take(&all->lane, dl_deadline_after(10 * DL_SECOND)));
            all->count++;
            dl_lane_pass(&all->lane);
            continue;
        }
        submit(all, &job, rank);
        if ((rank + i) % 3 == 1) {
            CHECK_OK(dl_lane_join(&all->lane, &job.job, dl_deadline_after(-1)));
        }
        await_release(&job);
    }
}

CHECK_CASE(threads_and_jobs_one_at_a_time)
{
    static shared all;

    dl_lane_init(&all.lane);
    dl_run_ranks(3, mix, &all);
    CHECK_EQUAL(all.count, 6000);
    dl_lane_fini(&all.lane);
}

#define PAIRS 500

typedef struct joined {
    shared all;
    counted_job jobs[PAIRS];
    atomic_int queued;
} joined;

/* Whoever of both comes first runs it, or its progress thread. */
static void
join_same(int rank, int size, void *context)
{
    joined *self = context;

    (void)size;
    for (int i = 0; i < PAIRS; i++) {
        if (rank == 0) {
            submit(&self->all, &self->jobs[i], i);
            atomic_store(&self->queued, i + 1);
        }
        while (atomic_load(&self->queued) <= i) {
            CHECK_OK(dl_sleep_until(dl_deadline_after(0)));
        }
        CHECK_OK(dl_lane_join(&self->all.lane, &self->jobs[i].job,
                              dl_deadline_after(10 * DL_SECOND)));
        CHECK(atomic_load(&self->jobs[i].job.is_over));
        if (rank == 0) {
            await_release(&self->jobs[i]);
        }
    }
}

CHECK_CASE(two_may_join_one_job)
{
    static joined self;

    dl_lane_init(&self.all.lane);
    dl_run_ranks(2, join_same, &self);
    CHECK_EQUAL(self.all.count, PAIRS);
    CHECK(dl_lane_try(&self.all.lane));
    dl_lane_fini(&self.all.lane);
}

/* The lane's progress thread may drop the last reference to the lane. */
static void
end_lane(dl_job *job)
{
    counted_job *self = (counted_job *)(void *)job;

    dl_lane_fini(&self->all->lane);
    atomic_store(&self->is_released, true);
}

CHECK_CASE(the_last_job_may_end_the_lane)
{
    static shared all;
    counted_job job = {
        .job = {.run = count_run,
                .release = end_lane,
                .queued_at = dl_now(),
                .deadline = dl_deadline_after(5 * DL_SECOND)},
        .all = &all,
    };

    dl_lane_init(&all.lane);
    CHECK_OK(dl_lane_submit(&all.lane, &job.job));
    await_release(&job);
    CHECK_EQUAL(all.count, 1);
}

/* A job that runs until it is released. */
typedef struct long_job {
    dl_job job;
    atomic_bool has_begun;
    atomic_bool may_end;
    atomic_bool is_released;
    pthread_t thread;
    int runs;
    int expiries;
} long_job;

static void
run_long(dl_job *job)
{
    long_job *self = (long_job *)(void *)job;

    self->thread = pthread_self();
    self->runs++;
    atomic_store(&self->has_begun, true);
    while (!atomic_load(&self->may_end)) {
        dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
}

static void
expire_long(dl_job *job)
{
    ((long_job *)(void *)job)->expiries++;
}

static void
release_long(dl_job *job)
{
    atomic_store(&((long_job *)(void *)job)->is_released, true);
}

static void
submit_long(dl_lane *lane, long_job *job, int64_t limit)
{
    *job = (long_job){
        .job = {.run = run_long,
                .expire = expire_long,
                .release = release_long,
                .queued_at = dl_now(),
                .deadline = dl_deadline_after(limit)},
    };
    CHECK_OK(dl_lane_submit(lane, &job->job));
}

static void
await_long(long_job *job)
{
    dl_deadline deadline = dl_deadline_after(10 * DL_SECOND);

    while (!atomic_load(&job->is_released)) {
        CHECK(!dl_deadline_passed(deadline));
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
}

static long_job ending_job;

/* As Ctrl-C that is noticed, which takes a while, just as the job comes to its end. */
static dl_status
interrupt_as_it_ends(void)
{
    if (!dl_is_main_thread()) {
        return DL_OK;
    }
    atomic_store(&ending_job.may_end, true);
    while (!atomic_load(&ending_job.is_released)) {
        sched_yield();
    }
    return interrupt();
}

CHECK_CASE(an_interrupt_is_not_lost_to_a_job_that_ends_with_it)
{
    static dl_lane lane;

    dl_lane_init(&lane);
    submit_long(&lane, &ending_job, 60 * DL_SECOND);
    dl_interrupt_install(interrupt_as_it_ends);
    /* Sooner than the job's own, so that it is left to its progress thread. */
    CHECK_EQUAL(dl_lane_join(&lane, &ending_job.job, dl_deadline_after(30 * DL_SECOND)),
                DL_INTERRUPTED);
    dl_interrupt_install(NULL);
    CHECK_EQUAL(ending_job.runs, 1);
    CHECK_EQUAL(ending_job.expiries, 0);
    dl_lane_fini(&lane);
}

/* At once, or when its progress thread has begun it; the first job starts that thread, and
 * the later ones find it. */
CHECK_CASE(a_wait_that_ends_early_leaves_the_job_whole)
{
    static dl_lane lane;
    static long_job job;

    dl_lane_init(&lane);
    for (int i = 0; i < 3; i++) {
        submit_long(&lane, &job, 60 * DL_SECOND);
        if (i == 2) {
            CHECK_OK(dl_sleep_until(dl_deadline_after(10 * DL_MILLISECOND)));
        }
        int64_t start = dl_now();
        CHECK_EQUAL(
            dl_lane_join(&lane, &job.job, dl_deadline_after(30 * DL_MILLISECOND)),
            DL_TIMEOUT);
        CHECK(dl_now() - start >= 30 * DL_MILLISECOND);
        CHECK(!atomic_load(&job.is_released));
        atomic_store(&job.may_end, true);
        CHECK_OK(dl_lane_join(&lane, &job.job, dl_deadline_after(-1)));
        await_long(&job);
        CHECK(!pthread_equal(job.thread, pthread_self()));
        CHECK_EQUAL(job.runs, 1);
        CHECK_EQUAL(job.expiries, 0);
    }
    CHECK(dl_lane_try(&lane));
    dl_lane_fini(&lane);
}

static void
take_behind(int rank, int size, void *context)
{
    dl_lane *lane = context;

    (void)size;
    CHECK_EQUAL(dl_lane_take(lane, dl_deadline_after((20 + rank) * DL_MILLISECOND)),
                DL_TIMEOUT);
}

CHECK_CASE(a_turn_that_is_wanted_sooner_does_not_end_the_job_before_it)
{
    static dl_lane lane;
    static long_job job;

    dl_lane_init(&lane);
    submit_long(&lane, &job, 60 * DL_SECOND);
    dl_run_ranks(3, take_behind, &lane);
    atomic_store(&job.may_end, true);
    CHECK_OK(dl_lane_take(&lane, dl_deadline_after(10 * DL_SECOND)));
    CHECK_EQUAL(job.runs, 1);
    dl_lane_pass(&lane);
    await_long(&job);
    dl_lane_fini(&lane);
}

typedef struct long_pair {
    dl_lane lane;
    long_job first;
    long_job second;
} long_pair;

/* All its waiters get the error, and it never runs. */
static void
join_second(int rank, int size, void *context)
{
    long_pair *self = context;

    (void)rank;
    (void)size;
    CHECK_OK(dl_lane_join(&self->lane, &self->second.job,
                          dl_deadline_after(10 * DL_SECOND)));
    CHECK(atomic_load(&self->second.job.is_over));
    CHECK_EQUAL(self->second.expiries, 1);
}

CHECK_CASE(a_job_whose_deadline_passes_behind_another_expires)
{
    static long_pair self;

    dl_lane_init(&self.lane);
    submit_long(&self.lane, &self.first, 60 * DL_SECOND);
    submit_long(&self.lane, &self.second, 40 * DL_MILLISECOND);
    dl_run_ranks(2, join_second, &self);
    CHECK(dl_deadline_passed(self.second.job.deadline));
    CHECK_EQUAL(self.second.runs, 0);
    await_long(&self.second);
    atomic_store(&self.first.may_end, true);
    CHECK_OK(
        dl_lane_join(&self.lane, &self.first.job, dl_deadline_after(10 * DL_SECOND)));
    await_long(&self.first);
    CHECK_EQUAL(self.first.runs, 1);
    CHECK(dl_lane_try(&self.lane));
    dl_lane_fini(&self.lane);
}

static void
await_begun(dl_lane *lane, long_job *job)
{
    dl_lane_expedite(lane);
    while (!atomic_load(&job->has_begun)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
}

/* Two ranks want the turn, or the second job, shortly after the first job has timed out,
 * which takes a while to say why.  They wait for that, and then begin nothing. */
static void
wait_for_last_words(int rank, int size, void *context)
{
    long_pair *self = context;
    dl_deadline deadline = dl_deadline_after(30 * DL_MILLISECOND);

    (void)size;
    if (rank == 0) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(80 * DL_MILLISECOND)));
        atomic_store(&self->first.may_end, true);
    } else if (rank == 1) {
        CHECK_EQUAL(dl_lane_take(&self->lane, deadline), DL_TIMEOUT);
        CHECK(atomic_load(&self->first.job.is_over));
    } else {
        CHECK_OK(dl_lane_join(&self->lane, &self->second.job,
                              dl_deadline_after(10 * DL_SECOND)));
    }
}

CHECK_CASE(behind_a_job_that_has_timed_out_its_end_is_awaited_a_little_longer)
{
    static long_pair self;

    dl_lane_init(&self.lane);
    submit_long(&self.lane, &self.first, 20 * DL_MILLISECOND);
    await_begun(&self.lane, &self.first);
    submit_long(&self.lane, &self.second, 25 * DL_MILLISECOND);
    atomic_store(&self.second.may_end, true);
    dl_run_ranks(3, wait_for_last_words, &self);
    CHECK_EQUAL(self.first.runs, 1);
    CHECK_EQUAL(self.second.runs, 0);
    CHECK_EQUAL(self.second.expiries, 1);
    CHECK(dl_lane_try(&self.lane));
    dl_lane_pass(&self.lane);
    /* But not for long. */
    submit_long(&self.lane, &self.first, 0);
    await_begun(&self.lane, &self.first);
    dl_deadline deadline = dl_deadline_after(10 * DL_MILLISECOND);
    CHECK_EQUAL(dl_lane_take(&self.lane, deadline), DL_TIMEOUT);
    CHECK(dl_now() - deadline.at > 500 * DL_MILLISECOND);
    CHECK(dl_now() - deadline.at < 10 * DL_SECOND);
    atomic_store(&self.first.may_end, true);
    await_long(&self.first);
    dl_lane_fini(&self.lane);
}

/* Random limits of jobs and of waits: each job ends once, one way or the other. */
static void
mix_limits(int rank, int size, void *context)
{
    dl_lane *lane = context;
    unsigned random = (unsigned)rank + 1;
    long_job job;

    (void)size;
    for (int i = 0; i < 500; i++) {
        random = random * 1103515245U + 12345U;
        submit_long(lane, &job, (int64_t)(random >> 16) % 200 * 1000);
        atomic_store(&job.may_end, true);
        dl_status status;
        do {
            random = random * 1103515245U + 12345U;
            status =
                dl_lane_join(lane, &job.job,
                             dl_deadline_after((int64_t)(random >> 16) % 200 * 1000));
            CHECK(status == DL_OK || status == DL_TIMEOUT);
        } while (status != DL_OK);
        await_long(&job);
        CHECK_EQUAL(job.runs + job.expiries, 1);
    }
}

CHECK_CASE(limits_of_every_order)
{
    static dl_lane lane;

    dl_lane_init(&lane);
    dl_run_ranks(3, mix_limits, &lane);
    CHECK(dl_lane_try(&lane));
    dl_lane_fini(&lane);
}

/* The job itself retires the lane, on the lane's progress thread. */
static void
retire_lane(dl_job *job)
{
    counted_job *self = (counted_job *)(void *)job;

    dl_lane_retire(&self->all->lane);
    atomic_store(&self->is_released, true);
}

/* Jobs without a waiter run, whether the lane has a thread or had one. */
CHECK_CASE(a_retired_lane_starts_another_thread_for_another_job)
{
    static shared all;

    dl_lane_init(&all.lane);
    dl_lane_retire(&all.lane);
    for (int turn = 0; turn < 200; turn++) {
        counted_job job;
        submit_with(&all, &job, turn, turn % 3 == 0 ? retire_lane : note_release);
        if (turn % 2 == 0) {
            dl_lane_retire(&all.lane);
        }
        await_release(&job);
        CHECK_EQUAL(all.count, turn + 1);
        dl_lane_retire(&all.lane);
    }
    dl_lane_fini(&all.lane);
}

CHECK_CASE(a_lane_may_end_as_its_thread_does)
{
    static shared all;

    for (int turn = 0; turn < 20; turn++) {
        counted_job job;
        dl_lane_init(&all.lane);
        submit_with(&all, &job, turn, retire_lane);
        await_release(&job);
        dl_lane_fini(&all.lane);
    }
    CHECK_EQUAL(all.count, 20);
}

/* While others retire it again and again. */
static void
submit_and_retire(int rank, int size, void *context)
{
    shared *all = context;

    (void)size;
    for (int i = 0; i < 300; i++) {
        if (rank == 0) {
            counted_job job;
            submit(all, &job, i);
            await_release(&job);
        } else {
            dl_lane_retire(&all->lane);
            CHECK_OK(dl_sleep_until(dl_deadline_after(50 * INT64_C(1000))));
        }
    }
}

CHECK_CASE(a_lane_may_be_retired_at_any_time)
{
    static shared all;

    dl_lane_init(&all.lane);
    dl_run_ranks(3, submit_and_retire, &all);
    CHECK_EQUAL(all.count, 300);
    dl_lane_fini(&all.lane);
}
