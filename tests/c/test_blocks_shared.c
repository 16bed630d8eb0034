/* SPDX-License-Identifier: BSD-3-Clause */
#include "blocks_walker.h"
#include "pg/cpu/shm/shared.h"

/* Blocks in slots take a few rounds. */
#define CHUNK ((size_t)32 << 10)

static test_boards all;
static dl_arena arena;
static dl_shared_views views[MOST_RANKS];

/* Where each rank has a core, slots are larger and used in parts. */
static void
start(int size, bool has_cores)
{
    boards_init(&all, size, has_cores ? 8 * CHUNK : CHUNK, has_cores);
    if (has_cores) {
        boards_go_on(&all);
    }
    CHECK_OK(dl_arena_create(&arena, size, false));
    for (int rank = 0; rank < size; rank++) {
        CHECK_OK(dl_shared_views_init(&views[rank], &arena, size));
        all.boards[rank].options.views = &views[rank];
    }
}

static void
stop(void)
{
    boards_fini(&all);
    for (int rank = 0; rank < all.size; rank++) {
        dl_shared_views_fini(&views[rank]);
    }
    dl_arena_fini(&arena);
}

/* In turn: all ranks share, one does, all but one do, none does. */
static bool
shares(int rank, int size, int turn)
{
    int chosen = size / 2;

    switch (turn % 4) {
    case 0:
        return true;
    case 1:
        return rank == chosen;
    case 2:
        return rank != chosen;
    default:
        return false;
    }
}

static void
by_turns(int rank, int size, void *context)
{
    static const size_t counts_of[] = {9001, 12000, 20003, 70};
    const bool *flags = context;
    walker self = {rank, size, 0, flags[0], flags[1], NULL, {0}};
    size_t counts[MOST_RANKS];

    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    for (int turn = 0; turn < 4; turn++) {
        self.lender = shares(rank, size, turn) ? &arena : NULL;
        for (int i = 0; i < size; i++) {
            counts[i] = counts_of[turn];
        }
        check_every_op(&self, counts, true);
        for (int i = 0; i < size; i++) {
            counts[i] = counts_of[(turn + i) % 4] * (i != turn % size);
        }
        check_every_op(&self, counts, false);
    }
    dl_exchange_fini(&self.exchange);
}

static void
on_sizes(bool is_in_place, bool is_strided, bool has_cores)
{
    static const int sizes[] = {2, 3, 5};
    bool flags[] = {is_in_place, is_strided};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        start(sizes[i], has_cores);
        dl_run_ranks(sizes[i], by_turns, flags);
        stop();
    }
}

CHECK_CASE(blocks_that_some_ranks_share)
{
    on_sizes(false, false, false);
}

CHECK_CASE(blocks_that_some_ranks_share_beside_parts_of_slots)
{
    on_sizes(false, false, true);
}

CHECK_CASE(blocks_that_some_ranks_share_in_place)
{
    on_sizes(true, false, false);
}

CHECK_CASE(blocks_with_gaps_that_some_ranks_share)
{
    on_sizes(false, true, false);
}

#define COUNT ((size_t)20000)

/* Slots hold what they held before. */
static void
check_stayed(const walker *self, int sharers)
{
    CHECK_EQUAL(self->exchange.place, DL_IN_PLACE);
    CHECK_EQUAL(self->exchange.sharers, sharers);
    CHECK_EQUAL(self->exchange.rounds, 1);
}

static void
stay(int rank, int size, void *unused)
{
    walker self = {rank, size, 0, false, false, &arena, {0}};
    size_t counts[] = {COUNT, COUNT, COUNT};

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    check_broadcast(&self, COUNT, 1);
    check_stayed(&self, 1);
    check_all_gather(&self, counts);
    check_stayed(&self, 3);
    check_all_to_all(&self, counts);
    check_stayed(&self, 3);
    for (int is_uneven = 0; is_uneven < 2; is_uneven++) {
        check_gather(&self, counts, 1, is_uneven);
        check_stayed(&self, 2);
        check_scatter(&self, counts, 2, is_uneven);
        check_stayed(&self, 1);
    }
    check_reduce(&self, COUNT, 2);
    check_stayed(&self, 2);
    check_reduce_scatter(&self, counts);
    check_stayed(&self, 3);
    self.lender = rank == 1 ? NULL : &arena;
    check_all_gather(&self, counts);
    CHECK_EQUAL(self.exchange.place, DL_IN_SLOT);
    CHECK_EQUAL(self.exchange.sharers, 2);
    /* Not worth a meeting more. */
    check_broadcast(&self, 2000, 0);
    CHECK_EQUAL(self.exchange.sharers, 0);
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(shared_blocks_stay_where_they_are)
{
    start(3, false);
    dl_run_ranks(3, stay, NULL);
    stop();
}

/* Sums that depend on the order of the additions. */
static float
inexact(int rank, size_t i)
{
    static const float scale[] = {1e-6f, 1e-3f, 1, 1e3f, 1e6f};

    return (float)((i * 7919 + (size_t)rank * 104729) % 100003)
           * scale[(i + (size_t)rank) % 5];
}

static void
reduce_rows(walker *self, dl_arena *lender, dl_reduce_op reduction, float *result)
{
    size_t counts[] = {COUNT, COUNT, COUNT};
    row inputs;

    self->lender = lender;
    row_init(self, &inputs, 3, counts, false);
    for (int i = 0; i < 3; i++) {
        inputs.tensors[i].dtype = DL_FLOAT32;
        for (size_t k = 0; k < COUNT; k++) {
            ((float *)inputs.tensors[i].data)[k] = inexact(self->rank, k + (size_t)i);
        }
    }
    dl_tensor output = inputs.tensors[0];
    output.data = result;
    dl_call args = {.op = DL_REDUCE_SCATTER,
                    .inputs = inputs.tensors,
                    .tensor = output,
                    .reduction = reduction,
                    .factor = 1.5};
    dl_tensor own = inputs.tensors[self->rank];
    if (reduction == DL_PREMUL_SUM) {
        dl_reduce_scale(own.data, DL_FLOAT32, own.data, COUNT, args.factor);
    }
    dl_op_context op = next_op(self, DL_REDUCE_SCATTER, &output);
    CHECK_OK(dl_reduce_scatter_board(&self->exchange, &op, &args, &own));
    row_fini(&inputs);
}

static void
compare_bits(int rank, int size, void *unused)
{
    static const dl_reduce_op reductions[] = {DL_SUM, DL_AVG, DL_MAX, DL_PREMUL_SUM};
    walker self = {rank, size, 0, false, false, NULL, {0}};
    float *plain = malloc(COUNT * sizeof(float));
    float *shared = malloc(COUNT * sizeof(float));

    (void)unused;
    CHECK(plain != NULL && shared != NULL);
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
        reduce_rows(&self, NULL, reductions[i], plain);
        reduce_rows(&self, &arena, reductions[i], shared);
        CHECK(memcmp(plain, shared, COUNT * sizeof(float)) == 0);
        reduce_rows(&self, rank == 1 ? NULL : &arena, reductions[i], shared);
        CHECK(memcmp(plain, shared, COUNT * sizeof(float)) == 0);
    }
    dl_exchange_fini(&self.exchange);
    free(plain);
    free(shared);
}

CHECK_CASE(sums_of_shared_blocks_have_the_same_bits)
{
    start(3, false);
    dl_run_ranks(3, compare_bits, NULL);
    stop();
}

/* The ranks whose arrays a stopped rank may still read time out. */
static void
stop_reading(int rank, int size, void *unused)
{
    walker self = {rank, size, 0, false, false, &arena, {0}};
    size_t count = COUNT;
    row tensor;

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    row_init(&self, &tensor, 1, &count, false);
    dl_call args = {.op = DL_BROADCAST, .tensor = tensor.tensors[0], .root = 0};
    dl_op_context op = next_op(&self, DL_BROADCAST, &args.tensor);
    if (rank == 1) {
        dl_board_begin(&all.boards[1], &op);
        CHECK_OK(dl_board_arrive(&all.boards[1]));
        boards_cut(&all, 1);
    } else {
        CHECK_STATUS(dl_broadcast_board(&self.exchange, &op, &args), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid 101 on host h)");
        dl_board_break(&all.boards[rank], all.boards[rank].op);
    }
    row_fini(&tensor);
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(a_reader_lost_in_the_middle_is_named)
{
    start(2, false);
    dl_run_ranks(2, stop_reading, NULL);
    stop();
}
