/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks as threads over the double of UCC. */
#include "groups.h"
#include "pg/ucc/ucc_reduction.h"

static dl_store *store;

static dl_group *
join_ucc_group(const char *name, int rank, int size, int64_t timeout)
{
    dl_group_options options = {
        .name = name, .backend = "ucc", .rank = rank, .size = size, .timeout = timeout};
    dl_group *group = NULL;

    CHECK_OK(dl_group_new(&options, store, &group));
    return group;
}

static void
run_ranks(int size, dl_rank_fn run)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(size, run, NULL);
    dl_store_unref(store);
}

static void
add_up(int rank, int size, void *context)
{
    dl_group *group = join_ucc_group("sum", rank, size, GROUP_PATIENCE);
    int64_t data[3] = {rank, 10, rank * rank};

    (void)context;
    for (int turn = 0; turn < 20; turn++) {
        CHECK_OK(dl_group_barrier(group, soon()));
        data[0] = rank + turn;
        CHECK_OK(all_reduce(group, data, 1));
        CHECK_EQUAL(data[0], size * (size - 1) / 2 + size * turn);
    }
    end_group(group);
}

CHECK_CASE(ranks_add_up)
{
    run_ranks(3, add_up);
}

static void
queue_sums(int rank, int size, void *context)
{
    dl_group *group = join_ucc_group("queue", rank, size, GROUP_PATIENCE);
    int64_t data[8];
    dl_work *works[8];

    (void)context;
    for (int i = 0; i < 8; i++) {
        data[i] = rank + i;
        dl_call args = {.op = DL_ALL_REDUCE,
                        .tensor = tensor_of(&data[i], 1, DL_INT64),
                        .reduction = DL_SUM};
        CHECK_OK(dl_group_submit(group, &args, soon(), &works[i]));
    }
    for (int i = 7; i >= 0; i--) {
        CHECK_OK(dl_work_wait(works[i], soon()));
        CHECK_EQUAL(data[i], size * (size - 1) / 2 + size * i);
        dl_work_unref(works[i]);
    }
    end_group(group);
}

CHECK_CASE(queued_sums_are_done_in_their_order)
{
    run_ranks(2, queue_sums);
}

/* The last rank differs: the others get the error, and so do their messages. */
static void
differ(int rank, int size, void *context)
{
    dl_group *group = join_ucc_group("differ", rank, size, GROUP_PATIENCE);
    int64_t data[2] = {rank, 7};
    dl_call send = {
        .tensor = tensor_of(data, 2, DL_INT64), .peer = (rank + 1) % size, .tag = 5};
    int64_t taken[2] = {0};
    dl_call receive = {.tensor = tensor_of(taken, 2, DL_INT64), .tag = 5};
    dl_call idle = {.tensor = tensor_of(taken, 2, DL_INT64), .tag = 6};
    dl_work *works[2];
    dl_message_end end = {.source = -1};

    (void)context;
    CHECK_OK(post_as(group, DL_SEND, &send, soon(), &works[0]));
    receive.peer = DL_ANY_RANK;
    CHECK_OK(exchange_as(group, DL_RECV_ANY, &receive, soon(), &end));
    CHECK_EQUAL(end.source, (rank + size - 1) % size);
    CHECK_EQUAL(taken[0], end.source);
    CHECK_OK(dl_work_wait(works[0], soon()));
    idle.peer = end.source;
    CHECK_OK(post_as(group, DL_RECV, &idle, soon(), &works[1]));
    CHECK_OK(all_reduce(group, data, 1));
    CHECK_STATUS(all_reduce(group, data, rank == size - 1 ? 2 : 1), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "all_reduce(2 x int64, SUM)");
    dl_group_close(group);
    /* Of its own group's end, or before that of the other rank's. */
    dl_status status = dl_work_wait(works[1], soon());
    CHECK(status == DL_MISMATCH || status == DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "all_reduce #2");
    CHECK_CONTAINS(dl_last_error()->text, "all_reduce(2 x int64, SUM)");
    dl_work_unref(works[0]);
    dl_work_unref(works[1]);
    dl_group_unref(group);
}

CHECK_CASE(messages_go_beside_and_calls_are_compared)
{
    run_ranks(3, differ);
}

/* Rank 0 sends its scatter, and rank 1 its gather, without waiting for the other. */
static void
go_ahead_and_verify(int rank, int size, void *context)
{
    dl_group *group = join_ucc_group("ahead", rank, size, GROUP_PATIENCE);
    int64_t data[3] = {0};
    dl_tensor blocks[2] = {tensor_of(&data[1], 1, DL_INT64),
                           tensor_of(&data[2], 1, DL_INT64)};
    dl_call call = {.op = DL_GATHER, .tensor = tensor_of(data, 1, DL_INT64)};

    (void)context;
    if (rank == 0) {
        call.op = DL_SCATTER;
        call.inputs = blocks;
    }
    dl_status status = dl_group_run(group, &call, soon());
    status = status == DL_OK ? dl_group_verify_calls(group, soon()) : status;
    CHECK_STATUS(status, DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "scatter");
    CHECK_CONTAINS(dl_last_error()->text, "gather");
    end_group(group);
}

CHECK_CASE(calls_of_ranks_that_went_ahead_are_compared_at_the_end)
{
    run_ranks(2, go_ahead_and_verify);
}

static void
lack_memory(int rank, int size, void *context)
{
    dl_group *group = join_ucc_group("one", rank, size, GROUP_PATIENCE);
    double number = 1;
    dl_call call = {.op = DL_EXSCAN,
                    .tensor = tensor_of(&number, 1, DL_FLOAT64),
                    .reduction = DL_PREMUL_SUM,
                    .factor = 2};

    (void)context;
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_group_run(group, &call, soon()), DL_NO_MEMORY);
    CHECK(dl_check_allocation_failed());
    end_group(group);
}

CHECK_CASE(a_group_of_one_rank_survives_that_memory_is_short)
{
    run_ranks(1, lack_memory);
}

CHECK_CASE(the_table_of_reductions)
{
    dl_ucc_reduction found = dl_ucc_reduction_of(DL_SUM, DL_FLOAT16);

    CHECK(found.is_widened);
    CHECK_EQUAL(found.dtype, 88);
    found = dl_ucc_reduction_of(DL_SUM, DL_COMPLEX128);
    CHECK_EQUAL(found.dtype, 96);
    CHECK_EQUAL((int)found.per_element, 2);
    CHECK_EQUAL(dl_ucc_reduction_of(DL_SUM, DL_BOOL).op, 2);
}
