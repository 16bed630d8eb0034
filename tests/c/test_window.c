/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/window.h"

#include <unistd.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "groups.h"
#include "windows.h"

#define SIZE 3
#define ROUNDS 300

static dl_store *store;
static int64_t drawn[SIZE][ROUNDS];

static dl_tensor
model_of(dl_dtype dtype)
{
    return (dl_tensor){.dtype = dtype, .item_size = dl_dtype_size(dtype)};
}

static dl_window *
make_window(dl_group *group, dl_dtype dtype, uint64_t count)
{
    dl_tensor model = model_of(dtype);
    dl_window *window = NULL;

    CHECK_OK(dl_window_new(group, &model, count, soon(), &window));
    return window;
}

static void
leave(dl_window *window, dl_group *group)
{
    CHECK_OK(dl_window_close(window, soon()));
    dl_window_free(window);
    CHECK_OK(dl_group_barrier(group, soon()));
    end_group(group);
}

/* Counts with atomic updates, and without them under the lock. */
static void
count_in_turn(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    dl_window *window = make_window(group, DL_INT64, 3);
    int64_t one = 1, before, number;
    dl_tensor input = tensor_of(&one, 1, DL_INT64);
    dl_tensor output = tensor_of(&before, 1, DL_INT64);
    dl_tensor value = tensor_of(&number, 1, DL_INT64);

    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        dl_window_access draw = {.rank = 1, .input = &input, .output = &output};
        CHECK_OK(dl_window_update(window, &draw, soon()));
        drawn[rank][i] = before;
        dl_window_access plain = {.rank = 1, .offset = 1};
        CHECK_OK(dl_window_lock(window, 1, false, soon()));
        plain.output = &value;
        CHECK_OK(dl_window_get(window, &plain, soon()));
        number++;
        plain.output = NULL;
        plain.input = &value;
        CHECK_OK(dl_window_put(window, &plain, soon()));
        CHECK_OK(dl_window_unlock(window, 1, soon()));
        dl_window_access swap = {
            .rank = 1, .offset = 2, .input = &value, .compared = &output};
        int64_t was = -1;
        dl_tensor seen = tensor_of(&was, 1, DL_INT64);
        swap.output = &seen;
        before = 0;
        do {
            number = before + 1;
            CHECK_OK(dl_window_swap(window, &swap, soon()));
            if (was == before) {
                break;
            }
            before = was;
        } while (true);
    }
    CHECK_OK(dl_window_fence(window, soon()));
    if (rank == 1) {
        const int64_t *memory = dl_window_own(window);
        for (int i = 0; i < 3; i++) {
            CHECK_EQUAL(memory[i], size * ROUNDS);
        }
    }
    leave(window, group);
}

CHECK_CASE(updates_and_locks_count_exactly)
{
    bool seen[SIZE * ROUNDS] = {false};

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(SIZE, count_in_turn, NULL);
    for (int i = 0; i < SIZE * ROUNDS; i++) {
        int64_t number = drawn[i / ROUNDS][i % ROUNDS];
        CHECK(number >= 0 && number < SIZE * ROUNDS && !seen[number]);
        seen[number] = true;
    }
    dl_store_unref(store);
}

static void
share_locks(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    dl_window *window = make_window(group, DL_INT32, 2);
    int32_t pair[2] = {0};
    dl_tensor both = tensor_of(pair, 2, DL_INT32);

    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        bool is_shared = i % 3 != rank % 3;
        dl_window_access access = {.rank = 0, .output = &both};
        CHECK_OK(dl_window_lock(window, 0, is_shared, soon()));
        CHECK_OK(dl_window_get(window, &access, soon()));
        CHECK_EQUAL(pair[0], pair[1]);
        if (!is_shared) {
            for (int side = 0; side < 2; side++) {
                dl_tensor half = tensor_of(&pair[side], 1, DL_INT32);
                dl_window_access put = {.rank = 0, .offset = side, .input = &half};
                pair[side]++;
                CHECK_OK(dl_window_put(window, &put, soon()));
            }
        }
        CHECK_OK(dl_window_unlock(window, 0, soon()));
    }
    leave(window, group);
}

CHECK_CASE(readers_see_no_half_of_a_write)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(SIZE, share_locks, NULL);
    dl_store_unref(store);
}

static void
disagree(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    dl_tensor model = model_of(DL_INT32);
    dl_window *window = NULL;
    uint64_t count = rank == 0 ? SIZE_MAX / 2 : 3;

    (void)unused;
    /* One rank cannot make its part: all fail, and the group goes on. */
    dl_status status = dl_window_new(group, &model, count, soon(), &window);
    CHECK_EQUAL(status, rank == 0 ? DL_NO_MEMORY : DL_BACKEND);
    if (rank != 0) {
        CHECK(strstr(dl_last_error()->text, "rank 0 of group g") != NULL);
    }
    leave(make_window(group, DL_INT32, 1), group);
}

CHECK_CASE(a_rank_without_memory_fails_all)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(2, disagree, NULL);
    dl_store_unref(store);
}

static dl_status
take(scene *self, int rank, bool is_shared, int64_t limit)
{
    dl_lock_request request = {
        .asker = rank, .is_shared = is_shared, .deadline = dl_deadline_after(limit)};

    return dl_lock_queue_take(self->queue, &self->ranks[rank], 0, &request);
}

static void
give_back(scene *self, int rank)
{
    CHECK_OK(dl_lock_queue_leave(self->queue, &self->ranks[rank], 0, rank, soon()));
}

static bool
said(const char *text)
{
    return strstr(dl_last_error()->text, text) != NULL;
}

CHECK_CASE(a_holder_that_has_ended_is_named)
{
    scene all;

    scene_init(&all);
    CHECK_OK(take(&all, 1, true, DL_SECOND));
    end_rank(&all, 1);
    CHECK_OK(take(&all, 2, true, DL_SECOND)); /* which blocks no other rank */
    give_back(&all, 2);
    CHECK_EQUAL(take(&all, 2, false, 10 * DL_SECOND), DL_PEER_LOST);
    CHECK(said("rank 1 (pid 101 on host h) exited or was killed while it held"));
    scene_fini(&all);
}

/* A rank that waits in a thread of its own, until it gives up. */
typedef struct waiter {
    scene *all;
    atomic_bool has_given_up;
} waiter;

static dl_status
check_waiter(void *context)
{
    waiter *self = context;

    return atomic_load(&self->has_given_up) ? dl_fail(DL_INTERRUPTED, "given up")
                                            : DL_OK;
}

static void *
wait_as_rank_1(void *context)
{
    waiter *self = context;
    dl_lock_request request = {
        .asker = 1, .deadline = soon(), .check = check_waiter, .context = self};

    CHECK_EQUAL(dl_lock_queue_take(self->all->queue, &self->all->ranks[1], 0, &request),
                DL_INTERRUPTED);
    return NULL;
}

static void
await_place(scene *self, uint32_t count)
{
    uint32_t used = 0;

    for (dl_deadline limit = soon(); used < count; sched_yield()) {
        CHECK(!dl_deadline_passed(limit));
        CHECK_OK(dl_latch_take(&self->queue->latch, &self->ranks[2], 0, limit));
        used = self->queue->used;
        dl_latch_release(&self->queue->latch);
    }
}

CHECK_CASE(one_that_ended_while_it_waited_is_passed_over)
{
    scene all;
    waiter other = {.all = &all};
    pthread_t thread;

    scene_init(&all);
    CHECK_OK(take(&all, 0, true, DL_SECOND));
    CHECK_OK(dl_thread_start(&thread, wait_as_rank_1, &other));
    await_place(&all, 2);
    /* Rank 1, which excludes others, is next. */
    CHECK_EQUAL(take(&all, 2, true, 0), DL_TIMEOUT);
    CHECK(said("rank 1 (pid 101 on host h) is before this rank"));
    end_rank(&all, 1);
    CHECK_OK(take(&all, 2, true, 0));
    give_back(&all, 2);
    atomic_store(&other.has_given_up, true);
    pthread_join(thread, NULL);
    CHECK_EQUAL(all.queue->used, 1);
    give_back(&all, 0);
    scene_fini(&all);
}

CHECK_CASE(a_wait_that_is_given_up_leaves_the_queue)
{
    scene all;
    waiter other = {.all = &all, .has_given_up = true};

    scene_init(&all);
    CHECK_OK(take(&all, 0, true, DL_SECOND));
    wait_as_rank_1(&other);
    CHECK_EQUAL(all.queue->used, 1);
    CHECK_OK(take(&all, 2, true, 0));
    give_back(&all, 2);
    give_back(&all, 0);
    scene_fini(&all);
}

static void
set_lost(scene *self, int rank, bool is_lost)
{
    dl_lock_queue_set_lost(self->queue, &self->ranks[0], 0, rank, is_lost);
}

/* Rank 1 loses its connection while it has the lock, and comes back. */
CHECK_CASE(a_rank_may_come_back_for_its_lock)
{
    scene all;

    scene_init(&all);
    CHECK_OK(take(&all, 1, false, 0));
    set_lost(&all, 1, true);
    CHECK_EQUAL(take(&all, 2, false, 0), DL_TIMEOUT);
    set_lost(&all, 1, false);
    give_back(&all, 1);
    CHECK_OK(take(&all, 2, false, 0));
    scene_fini(&all);
}

CHECK_CASE(a_rank_that_does_not_come_back_is_named)
{
    scene all;

    scene_init(&all);
    CHECK_OK(take(&all, 1, false, 0));
    set_lost(&all, 1, true);
    CHECK_EQUAL(take(&all, 2, false, 20 * DL_SECOND), DL_PEER_LOST);
    CHECK(said("rank 1 (pid 101 on host h)"));
    scene_fini(&all);
}

CHECK_CASE(locks_do_not_nest)
{
    scene all;

    scene_init(&all);
    CHECK_OK(take(&all, 0, true, 0));
    CHECK_EQUAL(take(&all, 0, true, 0), DL_INVALID);
    CHECK_OK(take(&all, 1, true, 0));
    CHECK_EQUAL(take(&all, 2, false, 0), DL_TIMEOUT);
    CHECK(said("has locked it"));
    give_back(&all, 0);
    give_back(&all, 1);
    CHECK_OK(take(&all, 2, false, 0));
    scene_fini(&all);
}

CHECK_CASE(a_latch_of_a_killed_rank_fails_its_waiters)
{
    scene all;
    dl_latch latch = {0};

    scene_init(&all);
    CHECK_OK(dl_latch_take(&latch, &all.ranks[1], 0, soon()));
    CHECK_EQUAL(dl_latch_take(&latch, &all.ranks[2], 0, dl_deadline_after(0)),
                DL_TIMEOUT);
    CHECK(said("rank 1 (pid 101 on host h) is updating it"));
    end_rank(&all, 1);
    CHECK_EQUAL(dl_latch_take(&latch, &all.ranks[2], 0, soon()), DL_PEER_LOST);
    CHECK(said("exited or was killed while it was updating"));
    scene_fini(&all);
}

CHECK_CASE(the_end_of_the_group_ends_a_wait)
{
    scene all;

    scene_init(&all);
    CHECK_OK(take(&all, 0, false, 0));
    all.ends.cause = (dl_error){.status = DL_CANCELLED, .text = "aborted"};
    atomic_store(&all.ends.is_over, true);
    CHECK_EQUAL(take(&all, 1, false, 10 * DL_SECOND), DL_CANCELLED);
    CHECK(said("aborted"));
    scene_fini(&all);
}

static void
hold_and_die(int rank, const rank_processes *all, void *unused)
{
    dl_store *own = open_file_store(all);
    dl_group *group = join_group(own, "g", rank, all->size);
    dl_window *window = make_window(group, DL_INT32, 1);
    int32_t one = 1;
    dl_tensor input = tensor_of(&one, 1, DL_INT32);
    dl_window_access access = {.rank = 1, .input = &input};

    (void)unused;
    if (rank == 1) {
        CHECK_OK(dl_window_lock(window, 0, true, soon()));
    }
    CHECK_OK(dl_window_fence(window, soon()));
    if (rank == 1) {
        kill(getpid(), SIGKILL);
    }
    CHECK_EQUAL(dl_window_lock(window, 0, false, soon()), DL_PEER_LOST);
    CHECK(said("rank 1 (pid"));
    CHECK_EQUAL(dl_window_put(window, &access, soon()), DL_PEER_LOST);
    CHECK(said("rank 1 (pid"));
    dl_window_free(window);
    end_group(group);
    dl_store_unref(own);
}

CHECK_CASE(a_killed_process_is_named)
{
    rank_processes all;

    start_processes(&all, 2, hold_and_die, NULL);
    join_processes(&all, 2);
}

static void
count_between_hosts(int rank, const rank_processes *all, void *unused)
{
    setenv("DISTLITE_HOST_HINT", rank == 1 ? "b" : "a", 1);
    store = open_file_store(all);
    count_in_turn(rank, all->size, unused);
    dl_store_unref(store);
}

CHECK_CASE(updates_and_locks_count_exactly_between_hosts)
{
    rank_processes all;

    start_processes(&all, SIZE, count_between_hosts, NULL);
    join_processes(&all, 0);
}

/* Rank 0 learns from its unlock, which the owner carries out, that the link broke before
 * an access of the epoch was confirmed. */
static void
unlock_after_a_break(int rank, const rank_processes *all, void *unused)
{
    int64_t value = 1;
    dl_tensor tensor = tensor_of(&value, 1, DL_INT64);
    dl_window_access write = {.rank = 1, .input = &tensor};
    dl_window_access read = {.rank = 1, .output = &tensor};
    dl_status status = DL_OK;

    (void)unused;
    setenv("DISTLITE_HOST_HINT", rank == 1 ? "b" : "a", 1);
    store = open_file_store(all);
    dl_group *group = join_group(store, "g", rank, all->size);
    dl_window *window = make_window(group, DL_INT64, 1);
    if (rank == 0) {
        CHECK_OK(dl_window_lock(window, 1, false, soon()));
        while (status == DL_OK) {
            CHECK_OK(dl_window_put(window, &write, soon()));
            status = dl_window_get(window, &read, dl_deadline_after(0));
        }
        CHECK_EQUAL(status, DL_TIMEOUT);
        CHECK_EQUAL(dl_window_unlock(window, 1, soon()), DL_PEER_LOST);
        CHECK(said("what they wrote may be missing"));
        CHECK_EQUAL(dl_window_unlock(window, 1, soon()), DL_INVALID);
        CHECK(said("does not hold the lock"));
    }
    CHECK_OK(dl_window_fence(window, soon()));
    if (rank == 1) {
        CHECK_OK(dl_window_lock(window, 1, false, soon()));
        CHECK_OK(dl_window_unlock(window, 1, soon()));
    }
    leave(window, group);
    dl_store_unref(store);
}

CHECK_CASE(an_unlock_that_fails_late_has_released_the_lock)
{
    rank_processes all;

    start_processes(&all, 2, unlock_after_a_break, NULL);
    join_processes(&all, 0);
}

static void
count_calls(void *context)
{
    ++*(int *)context;
}

CHECK_CASE(freeing_a_window_and_its_group_may_block)
{
    int calls = 0;

    CHECK_OK(dl_hash_store_new(&store));
    dl_group *group = join_group(store, "g", 0, 1);
    dl_window *window = make_window(group, DL_INT64, 4);

    dl_blocking_set_hook(count_calls, &calls);
    dl_window_free(window);
    CHECK_EQUAL(calls, 1);
    dl_blocking_set_hook(count_calls, &calls);
    dl_group_unref(group);
    CHECK_EQUAL(calls, 2);
    dl_store_unref(store);
}
