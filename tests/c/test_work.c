/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/thread.h"
#include "groups.h"
#include "pg/work.h"

#define JOBS 20

static void
submit(dl_group *group, int64_t *data, size_t count, dl_work **work)
{
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, count, DL_INT64),
                    .reduction = DL_SUM};

    CHECK_OK(dl_group_submit(group, &args, soon(), work));
}

static void
check_sums(const int64_t *data, size_t count, int64_t step, int size)
{
    for (size_t i = 0; i < count; i++) {
        CHECK_EQUAL(data[i], size * (size + 1) / 2 * step);
    }
}

static void
queue_then_wait(int rank, int size, void *store)
{
    static int64_t data[DL_RANKS_LIMIT][JOBS][100];
    dl_group *group = join_group(store, "work", rank, size);
    dl_work *works[JOBS];

    for (int job = 0; job < JOBS; job++) {
        for (int i = 0; i < 100; i++) {
            data[rank][job][i] = (rank + 1) * (job + 1);
        }
        submit(group, data[rank][job], 100, &works[job]);
    }
    /* In any order; again is the same. */
    for (int i = 0; i < JOBS; i++) {
        int job = (i * 7 + rank) % JOBS;
        CHECK_OK(dl_work_wait(works[job], soon()));
        CHECK_OK(dl_work_wait(works[job], dl_deadline_after(0)));
        CHECK(dl_work_is_done(works[job]));
        CHECK_EQUAL((int64_t)works[job]->sequence, job + 1);
        check_sums(data[rank][job], 100, job + 1, size);
    }
    for (int job = 0; job < JOBS; job++) {
        dl_work_unref(works[job]);
    }
    end_group(group);
}

static void
expedite_then_look(int rank, int size, void *store)
{
    dl_group *group = join_group(store, "expedited", rank, size);
    int64_t data[3] = {rank + 1, rank + 1, rank + 1};
    dl_deadline deadline = soon();
    dl_work *work;

    submit(group, data, 3, &work);
    dl_work_expedite(work);
    while (!dl_work_is_done(work)) {
        CHECK(!dl_deadline_passed(deadline));
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    dl_work_expedite(work); /* does nothing to a work that is done */
    check_sums(data, 3, 1, size);
    dl_work_unref(work);
    end_group(group);
}

CHECK_CASE(works_without_a_waiter_may_be_expedited)
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(3, expedite_then_look, store);
    dl_store_unref(store);
}

CHECK_CASE(works_are_done_in_order)
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(3, queue_then_wait, store);
    dl_store_unref(store);
}

/* Rank 0 waits at once; the others only poll. */
static void
look_only(int rank, int size, void *store)
{
    dl_group *group = join_group(store, "looks", rank, size);
    int64_t data[3] = {rank + 1, rank + 1, rank + 1};
    dl_deadline deadline = soon();
    dl_work *work;

    submit(group, data, 3, &work);
    while (rank > 0 && !dl_work_is_done(work)) {
        CHECK(!dl_deadline_passed(deadline));
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    CHECK_OK(dl_work_wait(work, deadline));
    check_sums(data, 3, 1, size);
    dl_work_unref(work);
    end_group(group);
}

CHECK_CASE(a_work_without_a_waiter_continues)
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(3, look_only, store);
    dl_store_unref(store);
}

static void
drop_then_sum(int rank, int size, void *store)
{
    dl_group *group = join_group(store, "drops", rank, size);
    int64_t dropped[2] = {1, 1};
    int64_t kept[2] = {rank + 1, rank + 1};
    dl_work *work;

    submit(group, dropped, 2, &work);
    dl_work_unref(work);
    /* A later operation that waits comes after it. */
    CHECK_OK(all_reduce(group, kept, 2));
    CHECK_EQUAL(dropped[1], size);
    check_sums(kept, 2, 1, size);
    end_group(group);
}

CHECK_CASE(dropping_a_work_is_safe)
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(2, drop_then_sum, store);
    dl_store_unref(store);
}

typedef struct listener {
    dl_work_notice notice;
    atomic_int calls;
} listener;

static void
hear(dl_work_notice *notice)
{
    atomic_fetch_add(&((listener *)(void *)notice)->calls, 1);
}

/* A waiter may continue before all callbacks have been called. */
static void
await_call(listener *self)
{
    dl_deadline deadline = soon();

    while (atomic_load(&self->calls) == 0) {
        CHECK(!dl_deadline_passed(deadline));
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    CHECK_EQUAL(atomic_load(&self->calls), 1);
}

static void
fail_together(int rank, int size, void *store)
{
    dl_group *group = join_group(store, "fails", rank, size);
    int64_t data[4] = {0};
    listener before = {.notice.call = hear};
    listener after = {.notice.call = hear};
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, 4, DL_INT64),
                    .reduction = DL_SUM};
    dl_work *wrong, *next = NULL;

    submit(group, data, rank == 0 ? 3 : 4, &wrong);
    /* The progress thread may have run into the failure by now. */
    dl_status queued = dl_group_submit(group, &args, soon(), &next);
    dl_work_notify(wrong, &before.notice);
    CHECK_STATUS(dl_work_wait(wrong, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "all_reduce(3 x int64, SUM)");
    await_call(&before);
    dl_work_notify(wrong, &after.notice);
    CHECK_EQUAL(atomic_load(&after.calls), 1);
    /* All calls fail with the first cause. */
    CHECK_STATUS(queued == DL_OK ? dl_work_wait(next, soon())
                                 : dl_group_barrier(group, soon()),
                 DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "is broken");
    dl_work_unref(wrong);
    dl_work_unref(next);
    end_group(group);
}

CHECK_CASE(a_failure_is_kept_and_reported)
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(2, fail_together, store);
    dl_store_unref(store);
}

static void
close_with_queue(int rank, int size, void *store)
{
    dl_group *group = join_group(store, "closes", rank, size);
    int64_t data[2] = {1, 1};
    dl_work *work = NULL;

    if (rank == 0) {
        submit(group, data, 2, &work);
    }
    dl_group_close(group);
    if (rank == 0) {
        dl_status status = dl_work_wait(work, soon());
        CHECK(status == DL_CLOSED || status == DL_PEER_LOST);
        dl_work_unref(work);
    }
    dl_group_unref(group);
}

CHECK_CASE(closing_ends_what_is_queued)
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(2, close_with_queue, store);
    dl_store_unref(store);
}

CHECK_CASE(wrong_arguments_are_refused_at_once)
{
    dl_store *store;
    dl_work *work = NULL;
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(NULL, 0, DL_INT64),
                    .reduction = DL_AVG};

    CHECK_OK(dl_hash_store_new(&store));
    dl_group *group = join_group(store, "alone", 0, 1);
    CHECK_STATUS(dl_group_submit(group, &args, soon(), &work), DL_INVALID);
    CHECK(work == NULL);
    CHECK_OK(dl_group_submit(group, &(dl_call){.op = DL_BARRIER}, soon(), &work));
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    end_group(group);
    dl_store_unref(store);
}

static dl_status
finish_interrupted(dl_work *work, dl_deadline deadline)
{
    (void)deadline;
    dl_work_finish(work, DL_OK);
    return dl_fail(DL_INTERRUPTED, "interrupted");
}

static void
keep(dl_work *work)
{
    dl_work_fini(work);
}

CHECK_CASE(an_interrupt_is_not_lost_to_an_end_that_comes_with_it)
{
    static const dl_work_ops ops = {.wait = finish_interrupted, .free = keep};
    dl_work work = {0};

    dl_work_init(&work, &ops, DL_BARRIER);
    CHECK_STATUS(dl_work_wait(&work, soon()), DL_INTERRUPTED);
    CHECK_OK(dl_work_wait(&work, soon()));
    dl_work_unref(&work);
    dl_work_unref(&work);
}
