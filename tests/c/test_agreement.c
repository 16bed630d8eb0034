/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "groups.h"
#include "pg/group_state.h"
#include "pg/record/recorder.h"
#include "store_calls.h"

static dl_store *store;

static void
run_detailed(int size, dl_rank_fn run, void *context)
{
    dl_debug_level_set(DL_DEBUG_DETAIL);
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(size, run, context);
    dl_store_unref(store);
}

static void
note_line(int line)
{
    dl_recorder_site = dl_recorder_add_site("train.py", "step", line);
}

/* One of each, with the level at DETAIL. */
static void
call_all(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t data[3] = {rank, 1, 2};
    int64_t block = rank + 1;
    int64_t row[3] = {0};
    dl_tensor tensor = tensor_of(data, 3, DL_INT64);
    dl_tensor own = tensor_of(&block, 1, DL_INT64);
    dl_tensor blocks[3];

    (void)unused;
    for (int i = 0; i < size; i++) {
        blocks[i] = tensor_of(&row[i], 1, DL_INT64);
    }
    CHECK_OK(all_reduce(group, data, 3));
    CHECK_EQUAL(data[1], size);
    CHECK_OK(dl_group_run(
        group, &(dl_call){.op = DL_BROADCAST, .tensor = tensor, .root = 1}, soon()));
    CHECK_OK(dl_group_barrier(group, soon()));
    dl_call reduce = {
        .op = DL_REDUCE, .tensor = tensor, .root = 2, .reduction = DL_MAX};
    CHECK_OK(dl_group_run(group, &reduce, soon()));
    CHECK_OK(dl_group_run(
        group, &(dl_call){.op = DL_ALL_GATHER, .tensor = own, .outputs = blocks},
        soon()));
    CHECK_EQUAL(row[2], 3);
    dl_call gather = {
        .op = DL_GATHER, .tensor = own, .outputs = rank == 1 ? blocks : NULL};
    gather.root = 1;
    CHECK_OK(dl_group_run(group, &gather, soon()));
    dl_call scatter = {
        .op = DL_SCATTER, .inputs = rank == 2 ? blocks : NULL, .tensor = own};
    scatter.root = 2;
    CHECK_OK(dl_group_run(group, &scatter, soon()));
    CHECK_EQUAL(block, rank + 1);
    dl_call parts = {
        .op = DL_REDUCE_SCATTER, .inputs = blocks, .tensor = own, .reduction = DL_SUM};
    CHECK_OK(dl_group_run(group, &parts, soon()));
    CHECK_EQUAL(block, (rank + 1) * size);
    CHECK_EQUAL(dl_group_sequence(group), 8);
    end_group(group);
}

CHECK_CASE(equal_calls_of_all_ranks_pass)
{
    run_detailed(3, call_all, NULL);
}

typedef struct mismatch {
    const char *says;
    void (*prepare)(int rank, dl_call *args); /* of a reduce to rank 0 */
} mismatch;

static void
change_shape(int rank, dl_call *args)
{
    static const int64_t shapes[2][2] = {{6, 1}, {2, 3}};

    args->tensor.ndim = 2;
    args->tensor.shape = shapes[rank == 1];
}

static void
change_dtype(int rank, dl_call *args)
{
    args->tensor.dtype = rank == 2 ? DL_UINT64 : DL_INT64;
}

static void
change_reduce_op(int rank, dl_call *args)
{
    args->reduction = rank == 0 ? DL_MAX : DL_SUM;
}

static void
change_root(int rank, dl_call *args)
{
    args->root = rank;
}

static void
call_badly(int rank, int size, void *context)
{
    const mismatch *wrong = context;
    dl_group *group = join_group(store, "g", rank, size);
    int64_t data[6] = {rank, rank, rank, rank, rank, rank};
    dl_call args = {
        .op = DL_REDUCE, .tensor = tensor_of(data, 6, DL_INT64), .reduction = DL_SUM};
    char line[64];

    note_line(10 + rank);
    wrong->prepare(rank, &args);
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_MISMATCH);
    const char *text = dl_last_error()->text;
    CHECK_CONTAINS(text, "Detected mismatch between collectives on ranks. Rank");
    CHECK_CONTAINS(text, wrong->says);
    CHECK_CONTAINS(text, "operation 1 of group g");
    for (int other = 0; other < size; other++) {
        snprintf(line, sizeof line, "at train.py:%d in step", 10 + other);
        CHECK_CONTAINS(text, line);
    }
    for (int i = 0; i < 6; i++) {
        CHECK_EQUAL(data[i], rank);
    }
    /* The first cause stays. */
    CHECK_STATUS(dl_group_barrier(group, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "group g is broken: Detected mismatch");
    end_group(group);
}

CHECK_CASE(each_difference_is_named_on_every_rank)
{
    const mismatch cases[] = {
        {"Ranks 0, 2 are running collective: reduce(int64[6, 1], SUM, root 0), but "
         "Rank 1 is running collective: reduce(int64[2, 3], SUM, root 0). Collectives "
         "differ in the following aspects: Tensor shapes: [6, 1] vs [2, 3].",
         change_shape},
        {"Tensor dtypes: int64 vs uint64", change_dtype},
        {"Rank 0 is running collective: reduce(int64[6], MAX, root 0), but Ranks 1, 2 "
         "are running",
         change_reduce_op},
        {"aspects: Root rank: 0 vs 1.", change_root},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_detailed(3, call_badly, (void *)&cases[i]);
    }
}

static void
call_another(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t data[2] = {0};

    (void)unused;
    if (rank == 2) {
        CHECK_STATUS(dl_group_barrier(group, soon()), DL_MISMATCH);
    } else {
        CHECK_STATUS(all_reduce(group, data, 2), DL_MISMATCH);
    }
    CHECK_CONTAINS(dl_last_error()->text,
                   "Ranks 0, 1 are running collective: all_reduce(int64[2], SUM), but "
                   "Rank 2 is running collective: barrier().");
    CHECK_CONTAINS(dl_last_error()->text, "Op type: all_reduce vs barrier");
    CHECK_CONTAINS(dl_last_error()->text, " on host ");
    end_group(group);
}

CHECK_CASE(another_operation_is_named)
{
    run_detailed(3, call_another, NULL);
}

/* Rank r sends r + 1 elements to each; where it is wrong, rank 2 expects one more. */
static void
send_blocks(int rank, int size, void *is_wrong)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t input[3] = {rank, rank, rank};
    int64_t output[3][4] = {{-1}};
    dl_tensor sent[3];
    dl_tensor received[3];
    dl_call args = {.op = DL_ALL_TO_ALL, .inputs = sent, .outputs = received};

    for (int i = 0; i < size; i++) {
        size_t extra = is_wrong != NULL && rank == 2 && i == 1;
        sent[i] = tensor_of(input, (size_t)rank + 1, DL_INT64);
        received[i] = tensor_of(output[i], (size_t)i + 1 + extra, DL_INT64);
    }
    dl_status status = dl_group_run(group, &args, soon());
    CHECK_STATUS(status, is_wrong == NULL ? DL_OK : DL_MISMATCH);
    if (status != DL_OK) {
        CHECK_CONTAINS(dl_last_error()->text, "all_to_all(int64, sends 3, 3, 3, "
                                              "receives 1, 3, 3)");
        CHECK_CONTAINS(dl_last_error()->text,
                       "Rank 1 is running collective: all_to_all(int64, sends 2, 2, 2, "
                       "receives 1, 2, 3), but Rank 2 is running");
    } else {
        CHECK(output[2][2] == 2 && output[1][1] == 1);
    }
    end_group(group);
}

CHECK_CASE(blocks_that_do_not_fit_are_named)
{
    run_detailed(3, send_blocks, NULL);
    run_detailed(3, send_blocks, &store);
}

/* Blocks that differ in size, known to all or to the root only. */
static void
gather_uneven(int rank, int size, void *is_wrong)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t data[3][3] = {{0}};
    dl_tensor blocks[3];
    size_t last = is_wrong != NULL && rank == 0 ? 2 : 3;

    for (int i = 0; i < size; i++) {
        blocks[i] = tensor_of(data[i], i == 2 ? last : (size_t)i + 1, DL_INT64);
    }
    dl_call args = {.op = DL_ALL_GATHER, .tensor = blocks[rank], .outputs = blocks};
    dl_call to_root = {.op = DL_GATHER,
                       .tensor = tensor_of(data, (size_t)rank + 1, DL_INT64),
                       .outputs = rank == 0 ? blocks : NULL,
                       .is_uneven = true};
    dl_status status = dl_group_run(group, &args, soon());
    CHECK_STATUS(status, is_wrong == NULL ? DL_OK : DL_MISMATCH);
    if (status != DL_OK) {
        CHECK_CONTAINS(dl_last_error()->text, "Block sizes: 1, 2, 2 vs 1, 2, 3");
    } else {
        blocks[0] = tensor_of(data[0], 1, DL_INT64);
        to_root.tensor = blocks[rank];
        CHECK_OK(dl_group_run(group, &to_root, soon()));
    }
    end_group(group);
}

CHECK_CASE(uneven_blocks_are_compared)
{
    run_detailed(3, gather_uneven, NULL);
    run_detailed(3, gather_uneven, &store);
}

static void
stay_away(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t data[2] = {0};
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, 2, DL_INT64),
                    .reduction = DL_SUM};

    (void)unused;
    note_line(20 + rank);
    CHECK_OK(dl_group_barrier(group, soon()));
    note_line(30 + rank);
    if (rank == 1) {
        /* It comes when the others have given up, and gets their error. */
        dl_bytes given_up = DL_LITERAL("given up");
        CHECK_OK(dl_store_wait(store, &given_up, 1, soon()));
        dl_status status = dl_group_run(group, &args, soon());
        CHECK_STATUS(status, DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "Ranks 1 failed to pass");
        end_group(group);
        return;
    }
    /* Counted from here, and long enough for both to come. */
    dl_deadline deadline = dl_deadline_after(400 * DL_MILLISECOND);
    CHECK_STATUS(dl_group_run(group, &args, deadline), DL_TIMEOUT);
    const char *text = dl_last_error()->text;
    CHECK_CONTAINS(text, "]: Ranks 1 failed to pass monitoredBarrier in 400 ms\n");
    CHECK_CONTAINS(text, "rank 1 has not called it; it (pid ");
    CHECK_CONTAINS(text, "was last in operation 1 at train.py:21 in step");
    CHECK_CONTAINS(text, "called all_reduce(int64[2], SUM) at train.py:30 in step");
    CHECK_CONTAINS(text, "called all_reduce(int64[2], SUM) at train.py:32 in step");
    int64_t sum;
    CHECK_OK(dl_store_add(store, DL_LITERAL("count"), 1, &sum, soon()));
    if (sum == 2) {
        CHECK_OK(dl_store_set(store, DL_LITERAL("given up"), DL_LITERAL("1"), soon()));
    }
    end_group(group);
}

CHECK_CASE(a_rank_that_does_not_join_is_named_and_notified)
{
    run_detailed(3, stay_away, NULL);
}

static void
queue_and_wait(int rank, int size, void *is_wrong)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t data[2] = {rank, 1};
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, 2, DL_INT64),
                    .reduction = DL_SUM};
    dl_work *works[2] = {NULL, NULL};
    int count = is_wrong == NULL ? 2 : 1; /* the second might find the group broken */

    if (is_wrong != NULL && rank == 1) {
        args.reduction = DL_MIN;
    }
    for (int i = 0; i < count; i++) {
        note_line(40 + 10 * i + rank);
        CHECK_OK(dl_group_submit(group, &args, soon(), &works[i]));
    }
    note_line(99);
    dl_status status = dl_work_wait(works[count - 1], soon());
    CHECK_STATUS(status, is_wrong == NULL ? DL_OK : DL_MISMATCH);
    if (is_wrong != NULL) {
        CHECK_CONTAINS(dl_last_error()->text, "train.py:40 in step");
        CHECK_CONTAINS(dl_last_error()->text, "train.py:41 in step");
    } else {
        CHECK_EQUAL(data[1], size * size);
    }
    dl_work_unref(works[0]);
    dl_work_unref(works[1]);
    end_group(group);
}

CHECK_CASE(queued_operations_are_compared_with_their_lines)
{
    run_detailed(2, queue_and_wait, NULL);
    run_detailed(2, queue_and_wait, &store);
}

static void
wait_to_be_aborted(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);

    (void)unused;
    if (rank == 0) {
        CHECK_STATUS(dl_group_barrier(group, soon()), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "no more time");
        CHECK_CONTAINS(dl_last_error()->text, "rank 1");
    } else {
        dl_group_abort(group, "no more time");
    }
    end_group(group);
}

CHECK_CASE(a_rank_that_gave_up_is_not_waited_for)
{
    run_detailed(2, wait_to_be_aborted, NULL);
}

static void
abort_oneself(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    dl_work *work;

    (void)unused;
    if (rank == 0) {
        CHECK_OK(dl_group_submit(group, &(dl_call){.op = DL_BARRIER}, soon(), &work));
        /* On the lane's progress thread. */
        while (dl_group_sequence(group) == 0) {
            nanosleep(&(struct timespec){.tv_nsec = DL_MILLISECOND}, NULL);
        }
        dl_group_abort(group, "enough");
        CHECK(dl_work_wait(work, soon()) != DL_OK);
        CHECK_CONTAINS(dl_last_error()->text, "enough");
        dl_work_unref(work);
    } else {
        dl_bytes over = DL_LITERAL("over");
        CHECK_OK(dl_store_wait(store, &over, 1, soon()));
    }
    if (rank == 0) {
        CHECK_OK(dl_store_set(store, DL_LITERAL("over"), DL_LITERAL("1"), soon()));
    }
    end_group(group);
}

CHECK_CASE(an_abort_ends_the_wait_here)
{
    run_detailed(2, abort_oneself, NULL);
}

CHECK_CASE(the_level_counts_when_the_group_is_made)
{
    dl_group *group = join_group(NULL, "alone", 0, 1);

    CHECK(group->host.agreement == NULL);
    dl_debug_level_set(DL_DEBUG_DETAIL);
    CHECK_OK(dl_group_barrier(group, soon()));
    CHECK(group->host.agreement == NULL);
    end_group(group);
    group = join_group(NULL, "alone", 0, 1);
    CHECK(group->host.agreement != NULL);
    CHECK_OK(dl_group_barrier(group, soon()));
    end_group(group);
}

static void
count_keys(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t before;
    int64_t after;

    (void)unused;
    CHECK_OK(dl_store_num_keys(store, &before, soon()));
    CHECK_OK(dl_group_barrier(group, soon()));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(dl_group_barrier(group, soon()));
    }
    CHECK_OK(dl_store_num_keys(store, &after, soon()));
    CHECK(after <= before + 3 * size);
    end_group(group);
}

CHECK_CASE(the_store_does_not_grow)
{
    run_detailed(3, count_keys, NULL);
}

CHECK_CASE(memory_may_run_out)
{
    for (long number = 1;; number++) {
        dl_group_options options = {
            .name = "g", .backend = "cpu", .size = 1, .timeout = GROUP_PATIENCE};
        dl_group *group = NULL;
        dl_debug_level_set(DL_DEBUG_DETAIL);
        dl_check_fail_allocation_at(number);
        dl_status status = dl_group_new(&options, NULL, &group);
        if (!dl_check_allocation_failed()) {
            CHECK_OK(status);
            end_group(group);
            break;
        }
        CHECK_STATUS(status, DL_NO_MEMORY);
    }
}
