/* SPDX-License-Identifier: BSD-3-Clause */

#include "base/interrupt.h"
#include "base/thread.h"
#include "groups.h"
#include "pg/agree/own_waits.h"
#include "store/prefix_store.h"

static dl_store *store;

static void
run_ranks(int size, dl_rank_fn run, void *context)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(size, run, context);
    dl_store_unref(store);
}

CHECK_CASE(a_group_of_one_needs_no_peer)
{
    int64_t data[] = {3, 4};
    float mean[] = {1.5f};
    dl_group *group = join_group(NULL, "alone", 0, 1);
    dl_call average = {.op = DL_ALL_REDUCE,
                       .tensor = tensor_of(mean, 1, DL_FLOAT32),
                       .reduction = DL_AVG};
    dl_call args = {.op = DL_BROADCAST, .tensor = tensor_of(data, 2, DL_INT64)};

    CHECK_OK(all_reduce(group, data, 2));
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_OK(dl_group_barrier(group, dl_deadline_after(0)));
    CHECK_OK(dl_group_run(group, &average, soon()));
    CHECK(data[0] == 3 && data[1] == 4 && mean[0] == 1.5f);
    CHECK_EQUAL(dl_group_sequence(group), 4);
    end_group(group);
}

CHECK_CASE(a_group_keeps_its_options)
{
    dl_group_options options = {
        .name = "g1", .backend = "gloo", .size = 1, .timeout = 7 * DL_SECOND};
    dl_group *group;

    CHECK_OK(dl_hash_store_new(&store));
    CHECK_OK(dl_group_new(&options, store, &group));
    CHECK(dl_group_ref(group) == group);
    dl_group_unref(group);
    CHECK_TEXT(dl_group_name(group), "g1");
    CHECK_TEXT(dl_group_backend(group), "gloo");
    CHECK(dl_group_rank(group) == 0 && dl_group_size(group) == 1);
    CHECK_EQUAL(dl_group_timeout(group), 7 * DL_SECOND);
    dl_group_set_timeout(group, -1);
    CHECK_EQUAL(dl_group_deadline(group).at, INT64_MAX);
    CHECK_EQUAL(dl_group_sequence(group), 0);
    end_group(group);
    dl_store_unref(store);
    dl_group_unref(NULL);
}

CHECK_CASE(groups_that_cannot_be_are_refused)
{
    dl_group_options options = {.name = "g", .backend = "cpu", .rank = 2, .size = 2};
    dl_group *group;

    CHECK_STATUS(dl_group_new(&options, NULL, &group), DL_INVALID);
    CHECK_TEXT(dl_last_error()->text, "rank 2 of a group of 2 does not exist");
    options = (dl_group_options){.name = "g", .backend = "cpu"};
    CHECK_STATUS(dl_group_new(&options, NULL, &group), DL_INVALID);
    options = (dl_group_options){.name = "g", .backend = "cpu", .rank = -1, .size = 2};
    CHECK_STATUS(dl_group_new(&options, NULL, &group), DL_INVALID);
    options = (dl_group_options){.name = "g", .backend = "carrier pigeon", .size = 2};
    CHECK_STATUS(dl_group_new(&options, NULL, &group), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "no backend \"carrier pigeon\"");
}

CHECK_CASE(a_vacant_group_meets_nobody)
{
    dl_group_options options = {
        .name = "g", .backend = "cpu", .rank = 1, .size = 3, .is_vacant = true};
    dl_group *group;

    CHECK_OK(dl_group_new(&options, NULL, &group));
    CHECK(dl_group_rank(group) == 1 && dl_group_size(group) == 3);
    CHECK_TEXT(dl_group_backend(group), "cpu");
    CHECK(dl_group_barrier(group, dl_deadline_after(DL_SECOND)) != DL_OK);
    CHECK(!dl_group_has_ended(group, 0));
    dl_group_abort(group, "its members are not known");
    CHECK_STATUS(dl_group_barrier(group, dl_deadline_after(DL_SECOND)), DL_CANCELLED);
    CHECK_CONTAINS(dl_last_error()->text, "its members are not known");
    dl_group_unref(group);
}

CHECK_CASE(a_rank_that_does_not_come_is_named)
{
    dl_group_options options = {
        .name = "g", .backend = "cpu", .size = 3, .timeout = 50 * DL_MILLISECOND};
    dl_group *group;

    CHECK_OK(dl_hash_store_new(&store));
    CHECK_STATUS(dl_group_new(&options, store, &group), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text,
               "joining group g as rank 0 of 3: timed out after 50ms: waiting for "
               "ranks 1, 2, which have not joined");
    dl_store_unref(store);
}

static void
compute(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t data[1000];

    (void)unused;
    for (size_t count = 0; count <= 1000; count = count * 3 + 1) {
        for (size_t i = 0; i < count; i++) {
            data[i] = (int64_t)i + rank;
        }
        CHECK_OK(all_reduce(group, data, count));
        for (size_t i = 0; i < count; i++) {
            CHECK_EQUAL(data[i], (int64_t)i * size + size * (size - 1) / 2);
        }
        CHECK_OK(dl_group_barrier(group, soon()));
        for (int root = 0; root < size; root++) {
            dl_call args = {.op = DL_BROADCAST,
                            .tensor = tensor_of(data, count, DL_INT64),
                            .root = root};
            for (size_t i = 0; rank == root && i < count; i++) {
                data[i] = (int64_t)i * root;
            }
            CHECK_OK(dl_group_run(group, &args, soon()));
            CHECK(count == 0 || data[count - 1] == ((int64_t)count - 1) * root);
        }
    }
    end_group(group);
}

CHECK_CASE(ranks_compute_together)
{
    for (int size = 1; size <= 8; size++) {
        run_ranks(size, compute, NULL);
    }
}

/* A transposed block of a larger array, at an odd address, and a reversed one. */
static void
compute_strided(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    uint8_t memory[8 * 8 * 8 + 1];
    int32_t reversed[40];
    int64_t shape[] = {5, 3};
    int64_t strides[] = {8, 64};
    int64_t length = 40;
    int64_t step = -4;
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = {.data = memory + 1,
                               .count = 15,
                               .item_size = 8,
                               .dtype = DL_INT64,
                               .ndim = 2,
                               .is_writable = true,
                               .shape = shape,
                               .strides = strides},
                    .reduction = DL_MAX};
    dl_call back = {.op = DL_BROADCAST,
                    .tensor = {.data = reversed + 39,
                               .count = 40,
                               .item_size = 4,
                               .dtype = DL_INT32,
                               .ndim = 1,
                               .is_writable = true,
                               .shape = &length,
                               .strides = &step},
                    .root = 1};

    (void)unused;
    memset(memory, 0, sizeof memory);
    for (int64_t i = 0; i < 64; i++) {
        int64_t value = (i + rank) % 5;
        memcpy(memory + 1 + i * 8, &value, 8);
    }
    CHECK_OK(dl_group_run(group, &args, soon()));
    for (int64_t i = 0; i < 64; i++) {
        int64_t value;
        int64_t most = (i % 5 == 4 || size < 2) ? i % 5 : (i % 5) + 1;
        bool is_inside = i % 8 < 5 && i / 8 < 3;
        memcpy(&value, memory + 1 + i * 8, 8);
        CHECK_EQUAL(value, is_inside ? most : (i + rank) % 5);
    }
    for (int i = 0; i < 40; i++) {
        reversed[i] = rank == 1 ? i : -1;
    }
    CHECK_OK(dl_group_run(group, &back, soon()));
    for (int i = 0; i < 40; i++) {
        CHECK_EQUAL(reversed[i], i);
    }
    end_group(group);
}

CHECK_CASE(any_strides_and_addresses)
{
    run_ranks(2, compute_strided, NULL);
}

/* Nothing is sent: the group goes on as if the call had not been. */
static void
call_badly(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t data[4] = {1, 1, 1, 1};
    int64_t shape[] = {2, 4};
    int64_t strides[] = {0, 8};
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, 4, DL_INT64),
                    .reduction = DL_AVG};
    dl_call from = {
        .op = DL_BROADCAST, .tensor = tensor_of(data, 4, DL_INT64), .root = size};

    (void)unused;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "AVG of int64");
    args.reduction = DL_SUM;
    args.tensor.is_writable = false;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "all_reduce: the array is read-only");
    args.tensor.is_writable = true;
    args.tensor.device = DL_CUDA;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_UNSUPPORTED);
    args.tensor = (dl_tensor){.data = data,
                              .count = 8,
                              .item_size = 8,
                              .dtype = DL_INT64,
                              .ndim = 2,
                              .is_writable = true,
                              .shape = shape,
                              .strides = strides};
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "share memory");
    args.tensor.ndim = 65;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INVALID);
    args.tensor = tensor_of(data, 4, DL_OPAQUE);
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INVALID);
    CHECK_STATUS(dl_group_run(group, &from, soon()), DL_INVALID);
    CHECK_TEXT(dl_last_error()->text,
               "broadcast: invalid root rank: rank 2 is not in group g of 2");
    from.root = 1;
    from.tensor.is_writable = rank == 1;
    if (rank == 0) {
        CHECK_STATUS(dl_group_run(group, &from, soon()), DL_INVALID);
        from.tensor.is_writable = true;
    } else {
        from.tensor.is_writable = false; /* the root only reads */
    }
    CHECK_EQUAL(dl_group_sequence(group), 0);
    CHECK_OK(dl_group_run(group, &from, soon()));
    CHECK_OK(all_reduce(group, data, 4));
    CHECK_EQUAL(data[3], 2);
    end_group(group);
}

CHECK_CASE(bad_calls_send_nothing)
{
    run_ranks(2, call_badly, NULL);
}

static void
call_differently(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "0", rank, size);
    dl_store *prefixed;
    int64_t data[1000] = {0};
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, 1000, DL_FLOAT32),
                    .reduction = DL_SUM};
    dl_call from = {.op = DL_BROADCAST, .tensor = tensor_of(data, 3, DL_INT64)};
    int64_t start = dl_now();

    (void)unused;
    CHECK_OK(dl_prefix_store_new(DL_LITERAL("other/"), store, &prefixed));
    dl_group *other = join_group(prefixed, "1", rank, size);
    dl_status status = rank == 1 ? dl_group_run(group, &from, soon())
                                 : dl_group_run(group, &args, soon());
    CHECK_EQUAL(status, DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "#1 in group 0: rank ");
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 called broadcast(3 x int64, from "
                                          "rank 0)");
    CHECK_CONTAINS(dl_last_error()->text, "called all_reduce(1000 x float32, SUM)");
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
    /* The first cause stays, at once; other groups live on. */
    CHECK_STATUS(dl_group_barrier(group, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "group 0 is broken: ");
    CHECK_CONTAINS(dl_last_error()->text, "called all_reduce(1000 x float32, SUM)");
    CHECK_OK(dl_group_barrier(other, soon()));
    end_group(other);
    end_group(group);
    dl_store_unref(prefixed);
}

CHECK_CASE(a_mismatch_is_reported_on_all_ranks_and_breaks_one_group)
{
    run_ranks(3, call_differently, NULL);
}

static void
come_late(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "0", rank, size);
    int64_t data = 1;
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(&data, 1, DL_INT64),
                    .reduction = DL_SUM};

    (void)unused;
    CHECK_OK(dl_group_barrier(group, soon()));
    if (rank == 0) {
        int64_t given_up = 0;
        while (given_up < size - 1) {
            CHECK_OK(dl_store_add(store, DL_LITERAL("given up"), 0, &given_up, soon()));
            sched_yield();
        }
        CHECK_STATUS(dl_group_run(group, &args, soon()), DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, " gave up: all_reduce #2 in group 0 ");
    } else {
        /* Long enough for both to come before one of them gives up. */
        CHECK_STATUS(
            dl_group_run(group, &args, dl_deadline_after(400 * DL_MILLISECOND)),
            DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text,
                       "all_reduce #2 in group 0 timed out after 400ms: waiting for "
                       "rank 0 (pid ");
        CHECK_CONTAINS(dl_last_error()->text,
                       "which has not called it (last seen in #1)");
        int64_t given_up;
        CHECK_OK(dl_store_add(store, DL_LITERAL("given up"), 1, &given_up, soon()));
        CHECK_STATUS(dl_group_barrier(group, soon()), DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, "group 0 is broken: ");
    }
    end_group(group);
}

CHECK_CASE(a_timeout_names_the_late_and_breaks_the_group)
{
    run_ranks(3, come_late, NULL);
}

static void
leave_early(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "0", rank, size);

    (void)unused;
    CHECK_OK(dl_group_barrier(group, soon()));
    if (rank == 2) {
        end_group(group);
        return;
    }
    CHECK_STATUS(dl_group_barrier(group, dl_deadline_after(-1)), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "barrier #2 in group 0: rank 2 (pid ");
    CHECK_CONTAINS(dl_last_error()->text, " left the group (last seen in #1)");
    end_group(group);
}

CHECK_CASE(a_rank_that_leaves_early_is_named)
{
    run_ranks(4, leave_early, NULL);
}

/* Rank 0 is aborted, or closed, by a thread of its own. */
typedef struct helper {
    dl_group *group;
    bool is_closing;
} helper;

static void *
end_from_outside(void *argument)
{
    helper *self = argument;

    CHECK_OK(dl_sleep_until(dl_deadline_after(50 * DL_MILLISECOND)));
    if (self->is_closing) {
        dl_group_close(self->group);
    } else {
        dl_group_abort(self->group, "enough");
        dl_group_abort(self->group, "again");
    }
    return NULL;
}

static void
be_ended(int rank, int size, void *context)
{
    helper self = {join_group(store, "0", rank, size), *(bool *)context};
    const char *why = self.is_closing ? "group 0 was closed" : "was aborted: enough";
    pthread_t thread;

    if (rank == 1) {
        /* Comes to the operation that rank 0 has given up. */
        CHECK_OK(dl_store_wait(store, &DL_LITERAL("ended"), 1, soon()));
        CHECK_STATUS(dl_group_barrier(self.group, dl_deadline_after(-1)), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "rank 0 (pid ");
        CHECK_CONTAINS(dl_last_error()->text, why);
        end_group(self.group);
        return;
    }
    int64_t start = dl_now();
    CHECK(pthread_create(&thread, NULL, end_from_outside, &self) == 0);
    CHECK_STATUS(dl_group_barrier(self.group, dl_deadline_after(-1)),
                 self.is_closing ? DL_CLOSED : DL_CANCELLED);
    CHECK_CONTAINS(dl_last_error()->text, why);
    CHECK(dl_now() - start < 50 * DL_MILLISECOND + DL_SECOND + CHECK_SLACK);
    CHECK_OK(dl_store_set(store, DL_LITERAL("ended"), DL_LITERAL("1"), soon()));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_STATUS(dl_group_barrier(self.group, soon()),
                 self.is_closing ? DL_CLOSED : DL_CANCELLED);
    end_group(self.group);
}

CHECK_CASE(an_abort_ends_the_waits_of_all_ranks)
{
    bool is_closing = false;

    run_ranks(2, be_ended, &is_closing);
}

CHECK_CASE(closing_ends_the_waits_of_all_ranks)
{
    bool is_closing = true;

    run_ranks(2, be_ended, &is_closing);
}

/* Several threads of every rank use one group: one operation at a time. */
typedef struct crowd {
    dl_group *group;
    int size;
} crowd;

static void *
reduce_often(void *argument)
{
    crowd *self = argument;

    for (int i = 0; i < 200; i++) {
        int64_t data[20];
        for (int j = 0; j < 20; j++) {
            data[j] = j;
        }
        CHECK_OK(all_reduce(self->group, data, 20));
        CHECK_EQUAL(data[19], 19 * self->size);
    }
    return NULL;
}

static void
crowd_in(int rank, int size, void *unused)
{
    crowd self = {join_group(store, "g", rank, size), size};
    pthread_t threads[3];

    (void)unused;
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, reduce_often, &self) == 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_EQUAL(dl_group_sequence(self.group), 600);
    end_group(self.group);
}

CHECK_CASE(threads_of_a_rank_take_turns)
{
    run_ranks(3, crowd_in, NULL);
}

static void
wait_behind(int rank, int size, void *unused)
{
    helper self = {join_group(store, "g", rank, size), false};
    pthread_t thread;
    crowd busy = {self.group, size};

    (void)unused;
    if (rank == 0) {
        CHECK(pthread_create(&thread, NULL, reduce_often, &busy) == 0);
        while (dl_group_sequence(self.group) == 0) {
            sched_yield();
        }
        CHECK_STATUS(dl_group_barrier(self.group, dl_deadline_after(60000000)),
                     DL_TIMEOUT);
        CHECK_TEXT(
            dl_last_error()->text,
            "barrier in group g timed out after 60ms: an earlier operation in this "
            "group has not ended");
        CHECK_OK(dl_store_set(store, DL_LITERAL("go"), DL_LITERAL("1"), soon()));
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        CHECK_OK(dl_store_wait(store, &DL_LITERAL("go"), 1, soon()));
        reduce_often(&busy);
    }
    end_group(self.group);
}

CHECK_CASE(waiting_for_a_turn_has_a_deadline_and_breaks_nothing)
{
    run_ranks(2, wait_behind, NULL);
}

static dl_status
interrupt(void)
{
    return dl_fail(DL_INTERRUPTED, "interrupted");
}

static void
be_interrupted(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "0", rank, size);

    (void)unused;
    if (rank == 0) {
        dl_interrupt_install(interrupt);
        CHECK_STATUS(dl_group_barrier(group, dl_deadline_after(-1)), DL_INTERRUPTED);
        dl_interrupt_install(NULL);
        CHECK_OK(dl_store_set(store, DL_LITERAL("go"), DL_LITERAL("1"), soon()));
    } else {
        CHECK_OK(dl_store_wait(store, &DL_LITERAL("go"), 1, soon()));
    }
    CHECK_STATUS(dl_group_barrier(group, soon()), DL_CANCELLED);
    CHECK_CONTAINS(dl_last_error()->text, "barrier #1");
    CHECK_CONTAINS(dl_last_error()->text, "was interrupted");
    end_group(group);
}

CHECK_CASE(an_interrupt_breaks_the_group)
{
    run_ranks(2, be_interrupted, NULL);
}

CHECK_CASE(nothing_is_left_open)
{
    CHECK_OK(dl_hash_store_new(&store));
    /* What the process shows to others stays open until its end. */
    dl_run_ranks(4, compute, NULL);
    int before = check_descriptors();
    for (int i = 0; i < 3; i++) {
        /* The records of the group before are gone: the keys may be used again. */
        dl_run_ranks(4, compute, NULL);
        CHECK_EQUAL(check_descriptors(), before);
    }
    dl_store_unref(store);
}

static void
fork_a_child(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "0", rank, size);

    (void)unused;
    CHECK_OK(dl_group_barrier(group, soon()));
    if (rank == 0) {
        int status;
        pid_t parent = getpid();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char text[64];
            snprintf(text, sizeof text, "group 0 was joined by process %d;", parent);
            CHECK_STATUS(dl_group_barrier(group, soon()), DL_CLOSED);
            CHECK_CONTAINS(dl_last_error()->text, text);
            dl_group_abort(group, "from the child");
            end_group(group);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    /* What the child did is no concern of the members. */
    CHECK_OK(dl_group_barrier(group, soon()));
    end_group(group);
}

CHECK_CASE(a_forked_child_is_no_member)
{
    run_ranks(2, fork_a_child, NULL);
}

static uint32_t
count_groups(void)
{
    static dl_own_waits waits;

    (void)dl_own_waits_describe(&waits, DL_SECOND);
    return waits.state.group_count;
}

static dl_group *
group_of_one(const char *name)
{
    dl_group_options options = {
        .name = name, .backend = "cpu", .size = 1, .timeout = DL_SECOND};
    dl_group *group = NULL;

    CHECK_OK(dl_group_new(&options, NULL, &group));
    CHECK_OK(dl_group_set_global_ranks(group, (int64_t[]){0}));
    return group;
}

CHECK_CASE(a_forked_child_knows_its_own_groups)
{
    dl_group *inherited = group_of_one("inherited");
    int status;

    pid_t child = fork();
    if (child == 0) {
        dl_group *own = group_of_one("own");
        end_group(inherited);
        CHECK_EQUAL(count_groups(), 1);
        end_group(own);
        CHECK_EQUAL(count_groups(), 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_EQUAL(count_groups(), 1);
    end_group(inherited);
}

CHECK_CASE(every_failed_allocation_is_reported)
{
    dl_group_options options = {
        .name = "g", .backend = "cpu", .size = 1, .timeout = DL_SECOND};
    dl_group *group = NULL;
    long number = 0;
    dl_status status;

    CHECK_OK(dl_hash_store_new(&store));
    do {
        dl_check_fail_allocation_at(++number);
        status = dl_group_new(&options, store, &group);
        if (status == DL_OK) {
            end_group(group);
        } else {
            CHECK_EQUAL(status, DL_NO_MEMORY);
        }
    } while (dl_check_allocation_failed());
    CHECK(number > 4);
    dl_store_unref(store);
}
