/* SPDX-License-Identifier: BSD-3-Clause */
#include "boards.h"
#include "pg/cpu/algorithms/algorithms.h"

#define CHUNK 512
#define MOST (16 * CHUNK + 3)

static test_boards all;

static uint8_t
value_of(int root, uint64_t sequence, size_t i)
{
    return (uint8_t)(i * 31 + i / 256 + (size_t)root * 7 + sequence);
}

static void
check_broadcast(dl_exchange *exchange, uint64_t sequence, int root, size_t size)
{
    int rank = exchange->board->options.rank;
    uint8_t data[MOST + 1];
    dl_op_context context = test_op(sequence, DL_BROADCAST, 10 * DL_SECOND);
    dl_call args = {.op = DL_BROADCAST,
                    .tensor = {.data = data,
                               .count = size,
                               .item_size = 1,
                               .dtype = DL_UINT8,
                               .is_contiguous = true,
                               .is_writable = rank != root},
                    .root = root};

    CHECK(size <= MOST);
    memset(data, 0xee, sizeof data);
    for (size_t i = 0; rank == root && i < size; i++) {
        data[i] = value_of(root, sequence, i);
    }
    context.fingerprint.count_low = (uint32_t)(size);
    context.fingerprint.root = (uint32_t)root;
    CHECK_OK(dl_broadcast_board(exchange, &context, &args));
    for (size_t i = 0; i < size; i++) {
        CHECK_EQUAL(data[i], value_of(root, sequence, i));
    }
    CHECK_EQUAL(data[size], 0xee);
}

static void
from_every_root(int rank, int size, void *unused)
{
    static const size_t sizes[] = {0,         1,         63,
                                   64,        103,       104,
                                   105,       CHUNK - 1, CHUNK,
                                   CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1,
                                   3 * CHUNK, 1000,      5 * CHUNK + 9,
                                   MOST};
    uint64_t sequence = 0;
    dl_exchange exchange;

    (void)unused;
    CHECK_OK(dl_exchange_init(&exchange, &all.boards[rank]));
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        for (int root = 0; root < size; root++) {
            check_broadcast(&exchange, ++sequence, root, sizes[n]);
        }
    }
    dl_exchange_fini(&exchange);
}

static void
in_any_order(int rank, int size, void *unused)
{
    unsigned common = 5;
    unsigned own = (unsigned)rank;
    dl_exchange exchange;

    (void)unused;
    CHECK_OK(dl_exchange_init(&exchange, &all.boards[rank]));
    for (uint64_t sequence = 1; sequence <= 150; sequence++) {
        size_t limit = rand_r(&common) % 2 ? DL_BOARD_PAYLOAD : MOST;
        size_t bytes = (size_t)rand_r(&common) % (limit + 1);
        int root = rand_r(&common) % size;
        for (int pause = rand_r(&own) % 4; pause > 0; pause--) {
            sched_yield();
        }
        check_broadcast(&exchange, sequence, root, bytes);
    }
    dl_exchange_fini(&exchange);
}

static void
on_all_sizes(dl_rank_fn body)
{
    static const int sizes[] = {2, 3, 4, 7, 8};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        boards_init(&all, sizes[i], CHUNK, false);
        dl_run_ranks(sizes[i], body, NULL);
        boards_fini(&all);
    }
}

CHECK_CASE(every_size_from_every_root)
{
    on_all_sizes(from_every_root);
}

CHECK_CASE(one_after_the_other_in_any_order)
{
    on_all_sizes(in_any_order);
}

/* The root's slots are filled two rounds ahead at most: a rank that stops is missed. */
static void
stop_after_two_rounds(int rank, int size, void *unused)
{
    uint8_t data[MOST] = {0};
    dl_op_context context = test_op(1, DL_BROADCAST, -1);
    dl_call args = {
        .op = DL_BROADCAST,
        .tensor = {.data = data, .count = MOST, .item_size = 1, .dtype = DL_UINT8}};

    (void)size;
    (void)unused;
    if (rank == 2) {
        dl_board_begin(&all.boards[2], &context);
        CHECK_OK(dl_board_arrive(&all.boards[2]));
        dl_board_publish_step(&all.boards[2], 1);
        dl_board_publish_step(&all.boards[2], 2);
        boards_cut(&all, 2);
        return;
    }
    dl_exchange exchange;
    CHECK_OK(dl_exchange_init(&exchange, &all.boards[rank]));
    CHECK_STATUS(dl_broadcast_board(&exchange, &context, &args), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 2 (pid 102 on host h)");
    dl_board_break(&all.boards[rank], all.boards[rank].op);
    dl_exchange_fini(&exchange);
}

CHECK_CASE(a_rank_lost_in_the_middle_is_named)
{
    boards_init(&all, 3, CHUNK, false);
    dl_run_ranks(3, stop_after_two_rounds, NULL);
    boards_fini(&all);
}
