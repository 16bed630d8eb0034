/* SPDX-License-Identifier: BSD-3-Clause */
#include "blocks_walker.h"

/* Small, so that little data takes many rounds. */
#define CHUNK 4096
#define MOST_COUNT 6000

static test_boards all;

/* Around what fits on a line, a unit, a slot; fewer elements than ranks; many rounds. */
static const size_t even[] = {0,   1,    2,    3,    7,    13,   16,   25,
                              26,  27,   127,  128,  129,  511,  512,  513,
                              999, 1023, 1024, 1025, 2047, 2049, 4096, 5003};

/* Where slots are written past the caches, outputs are, too. */
static void
open_exchange(walker *self, int rank)
{
    CHECK_OK(dl_exchange_init(&self->exchange, &all.boards[rank]));
    if (all.boards[rank].writer.is_streaming) {
        self->exchange.cached_limit = 0;
        for (int i = 0; i < self->size; i++) {
            self->exchange.writers[i] = all.boards[rank].writer;
        }
    }
}

static void
on_even_blocks(int rank, int size, void *context)
{
    const bool *flags = context;
    walker self = {rank, size, 0, flags[0], flags[1], NULL, {0}};
    size_t counts[MOST_RANKS];

    open_exchange(&self, rank);
    for (size_t n = 0; n < sizeof even / sizeof *even; n++) {
        for (int i = 0; i < size; i++) {
            counts[i] = even[n];
        }
        check_every_op(&self, counts, true);
    }
    dl_exchange_fini(&self.exchange);
}

static void
on_uneven_blocks(int rank, int size, void *context)
{
    const bool *flags = context;
    walker self = {rank, size, 0, flags[0], flags[1], NULL, {0}};
    size_t counts[MOST_RANKS];
    unsigned common = 3;
    unsigned own = (unsigned)rank;

    open_exchange(&self, rank);
    for (int n = 0; n < 20; n++) {
        size_t limit = (size_t[]){1, 4, 100, 1500, 4000}[n % 5];
        for (int i = 0; i < size; i++) {
            bool is_none = rand_r(&common) % 4 == 0;
            counts[i] = is_none ? 0 : (size_t)rand_r(&common) % (limit + 1);
        }
        for (int pause = rand_r(&own) % 4; pause > 0; pause--) {
            sched_yield();
        }
        check_every_op(&self, counts, false);
    }
    dl_exchange_fini(&self.exchange);
}

static void
on_all_sizes(dl_rank_fn body, bool is_in_place, bool is_strided, bool is_streaming)
{
    static const int sizes[] = {2, 3, 4, 7, 8};
    bool flags[] = {is_in_place, is_strided};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        boards_init(&all, sizes[i], CHUNK, false);
        if (is_streaming) {
            boards_stream(&all);
        }
        dl_run_ranks(sizes[i], body, flags);
        boards_fini(&all);
    }
}

CHECK_CASE(even_blocks)
{
    on_all_sizes(on_even_blocks, false, false, false);
}

CHECK_CASE(even_blocks_in_place)
{
    on_all_sizes(on_even_blocks, true, false, false);
}

CHECK_CASE(even_blocks_with_gaps)
{
    on_all_sizes(on_even_blocks, false, true, false);
}

CHECK_CASE(uneven_blocks)
{
    on_all_sizes(on_uneven_blocks, false, false, false);
}

CHECK_CASE(uneven_blocks_in_place)
{
    on_all_sizes(on_uneven_blocks, true, false, false);
}

/* Large enough to be used in parts, where each rank has a core. */
#define LARGER_CHUNK ((size_t)64 << 10)

static void
in_parts(dl_rank_fn body, bool is_strided)
{
    bool flags[] = {false, is_strided};

    for (int size = 2; size <= 4; size++) {
        boards_init(&all, size, LARGER_CHUNK, true);
        boards_go_on(&all);
        dl_run_ranks(size, body, flags);
        boards_fini(&all);
    }
}

CHECK_CASE(even_blocks_in_parts_of_slots)
{
    in_parts(on_even_blocks, false);
}

CHECK_CASE(uneven_blocks_in_parts_of_slots)
{
    in_parts(on_uneven_blocks, false);
    in_parts(on_uneven_blocks, true);
}

CHECK_CASE(even_blocks_past_the_caches)
{
    on_all_sizes(on_even_blocks, false, false, true);
}

CHECK_CASE(uneven_blocks_with_gaps_past_the_caches)
{
    on_all_sizes(on_uneven_blocks, false, true, true);
}

CHECK_CASE(uneven_blocks_with_gaps)
{
    on_all_sizes(on_uneven_blocks, false, true, false);
}

/* Sums that depend on the order of the additions. */
#define INEXACT 700

static float sums[3][INEXACT];

static float
inexact_value(int rank, size_t i)
{
    unsigned seed = (unsigned)rank * 7919 + (unsigned)i;
    float scale[] = {1e-6f, 1e-3f, 1, 1e3f, 1e6f};

    return (float)(rand_r(&seed) % 100003) * scale[(i + (size_t)rank) % 5];
}

static dl_tensor
floats(float *data, size_t count)
{
    return (dl_tensor){.data = data,
                       .count = count,
                       .item_size = 4,
                       .dtype = DL_FLOAT32,
                       .is_contiguous = true,
                       .is_writable = true};
}

static void
sum_in_three_ways(int rank, int size, void *unused)
{
    walker self = {rank, size, 0, false, false, NULL, {0}};
    float data[3][INEXACT];
    dl_tensor blocks[MOST_RANKS];

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    for (size_t i = 0; i < INEXACT; i++) {
        data[0][i] = data[1][i] = data[2][i] = inexact_value(rank, i);
    }
    dl_call whole = {
        .op = DL_ALL_REDUCE, .tensor = floats(data[0], INEXACT), .reduction = DL_AVG};
    dl_op_context op = next_op(&self, DL_ALL_REDUCE, &whole.tensor);
    CHECK_OK(dl_all_reduce_select(&all.boards[rank], &op, &whole));
    dl_call rooted = {.op = DL_REDUCE,
                      .tensor = floats(data[1], INEXACT),
                      .root = 4,
                      .reduction = DL_AVG};
    op = next_op(&self, DL_REDUCE, &rooted.tensor);
    CHECK_OK(dl_reduce_board(&self.exchange, &op, &rooted));
    size_t share = INEXACT / (size_t)size;
    for (int i = 0; i < size; i++) {
        blocks[i] = floats(data[2] + (size_t)i * share, share);
    }
    dl_call scattered = {.op = DL_REDUCE_SCATTER,
                         .inputs = blocks,
                         .tensor = blocks[rank],
                         .reduction = DL_AVG};
    op = next_op(&self, DL_REDUCE_SCATTER, &scattered.tensor);
    CHECK_OK(dl_reduce_scatter_board(&self.exchange, &op, &scattered, &blocks[rank]));
    if (rank == 4) {
        memcpy(sums[0], data[0], sizeof data[0]);
        memcpy(sums[1], data[1], sizeof data[1]);
    }
    memcpy(sums[2] + (size_t)rank * share, blocks[rank].data, share * 4);
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(every_reduction_has_the_same_bits)
{
    boards_init(&all, 7, CHUNK, false);
    dl_run_ranks(7, sum_in_three_ways, NULL);
    CHECK(memcmp(sums[0], sums[1], sizeof sums[0]) == 0);
    CHECK(memcmp(sums[0], sums[2], sizeof sums[0]) == 0);
    boards_fini(&all);
}

/* Real chunks, and small and large operations by turns. */
static void
on_large_blocks(int rank, int size, void *unused)
{
    static const size_t large[] = {270001, 40};
    walker self = {rank, size, 0, false, false, NULL, {0}};
    size_t counts[MOST_RANKS] = {0};

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    for (size_t n = 0; n < sizeof large / sizeof *large; n++) {
        for (int i = 0; i < size; i++) {
            counts[i] = large[n];
        }
        check_every_op(&self, counts, true);
    }
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(real_chunks)
{
    for (int size = 2; size <= 3; size++) {
        boards_init(&all, size, DL_BOARD_CHUNK, size == 2);
        dl_run_ranks(size, on_large_blocks, NULL);
        boards_fini(&all);
    }
}

/* Rank 1 sends rank 2 one element more than that expects. */
static void
disagree(int rank, int size, void *unused)
{
    size_t sent[] = {3, 3, rank == 1 ? 4u : 3u};
    size_t received[] = {3, 3, 3};
    walker self = {rank, size, 0, false, false, NULL, {0}};
    row inputs;
    row outputs;

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    row_init(&self, &inputs, 3, sent, false);
    row_init(&self, &outputs, 3, received, false);
    dl_call args = {
        .op = DL_ALL_TO_ALL, .inputs = inputs.tensors, .outputs = outputs.tensors};
    dl_op_context op = next_op(&self, DL_ALL_TO_ALL, &inputs.tensors[0]);
    CHECK_STATUS(dl_all_to_all_board(&self.exchange, &op, &args), DL_MISMATCH);
    CHECK_TEXT(dl_last_error()->text,
               "all_to_all #1 in group g: rank 1 has 4 x int32 for rank 2, which "
               "expects 3 x int32");
    row_fini(&inputs);
    row_fini(&outputs);
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(pairs_that_disagree_are_named_on_every_rank)
{
    boards_init(&all, 3, CHUNK, false);
    dl_run_ranks(3, disagree, NULL);
    boards_fini(&all);
}

/* Every rank sends as much to each as it expects from each, but not all the same. */
static void
differ_evenly(int rank, int size, void *unused)
{
    size_t count = rank == 2 ? 4 : 3;
    size_t counts[] = {count, count, count};
    walker self = {rank, size, 0, false, false, NULL, {0}};
    row inputs;
    row outputs;

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    row_init(&self, &inputs, 3, counts, false);
    row_init(&self, &outputs, 3, counts, false);
    dl_call args = {
        .op = DL_ALL_TO_ALL, .inputs = inputs.tensors, .outputs = outputs.tensors};
    dl_op_context op = next_op(&self, DL_ALL_TO_ALL, &inputs.tensors[0]);
    CHECK_STATUS(dl_all_to_all_board(&self.exchange, &op, &args), DL_MISMATCH);
    CHECK_TEXT(dl_last_error()->text,
               "all_to_all #1 in group g: rank 0 has 3 x int32 for rank 2, which "
               "expects 4 x int32");
    row_fini(&inputs);
    row_fini(&outputs);
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(ranks_that_are_even_by_themselves_disagree_all_the_same)
{
    boards_init(&all, 3, CHUNK, false);
    dl_run_ranks(3, differ_evenly, NULL);
    boards_fini(&all);
}

/* Only rank 0 exchanges as much with each, and has room for it on its line: ranks 1 and
 * 2 have more for each other. */
static void
exchange_more(int rank, int size, void *context)
{
    const size_t *more = context;
    size_t counts[] = {3, rank == 2 ? *more : 3, rank == 1 ? *more : 3};
    walker self = {rank, size, 0, false, false, NULL, {0}};
    row inputs;
    row outputs;

    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    for (int turn = 0; turn < 5; turn++) {
        row_init(&self, &inputs, 3, counts, false);
        row_init(&self, &outputs, 3, counts, false);
        for (int i = 0; i < size; i++) {
            int32_t *data = inputs.tensors[i].data;
            for (size_t k = 0; k < counts[i]; k++) {
                data[k] = 100 * turn + 10 * rank + i;
            }
        }
        dl_call args = {
            .op = DL_ALL_TO_ALL, .inputs = inputs.tensors, .outputs = outputs.tensors};
        dl_op_context op = next_op(&self, DL_ALL_TO_ALL, &inputs.tensors[0]);
        CHECK_OK(dl_all_to_all_board(&self.exchange, &op, &args));
        for (int i = 0; i < size; i++) {
            const int32_t *data = outputs.tensors[i].data;
            for (size_t k = 0; k < counts[i]; k++) {
                CHECK_EQUAL(data[k], 100 * turn + 10 * i + rank);
            }
        }
        row_fini(&inputs);
        row_fini(&outputs);
    }
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(even_and_uneven_ranks_exchange)
{
    /* The last ones take several rounds. */
    size_t more[] = {5, 30, 3000};

    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        boards_init(&all, 3, CHUNK, i % 2 == 0);
        dl_run_ranks(3, exchange_more, &more[i]);
        boards_fini(&all);
    }
}

/* Blocks of no and of few bytes each. */
static void
exchange_few(int rank, int size, void *unused)
{
    walker self = {rank, size, 0, false, false, NULL, {0}};

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    for (size_t count = 0; count < 30; count++) {
        size_t counts[] = {count, count, count};
        check_all_to_all(&self, counts);
    }
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(few_bytes_for_each_other)
{
    for (int size = 2; size <= 3; size++) {
        boards_init(&all, size, CHUNK, false);
        dl_run_ranks(size, exchange_few, NULL);
        boards_fini(&all);
    }
}

static void
gather_too_little(int rank, int size, void *unused)
{
    size_t counts[] = {2, 2, 2};
    walker self = {rank, size, 0, false, false, NULL, {0}};
    row outputs;

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    row_init(&self, &outputs, 3, counts, false);
    dl_call args = {.op = DL_GATHER,
                    .tensor = outputs.tensors[rank],
                    .outputs = outputs.tensors,
                    .root = 1,
                    .is_uneven = true};
    args.tensor.count = rank == 2 ? 1 : 2;
    dl_op_context op = next_op(&self, DL_GATHER_V, &outputs.tensors[0]);
    CHECK_STATUS(dl_gather_board(&self.exchange, &op, &args), DL_MISMATCH);
    CHECK_TEXT(dl_last_error()->text,
               "gather_v #1 in group g: rank 2 has 1 x int32 for rank 1, which expects "
               "2 x int32");
    row_fini(&outputs);
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(a_root_that_expects_more_is_named)
{
    boards_init(&all, 3, CHUNK, false);
    dl_run_ranks(3, gather_too_little, NULL);
    boards_fini(&all);
}

/* A rank that stops after its arrival is missed by all that need it. */
static void
stop_in_the_middle(int rank, int size, void *unused)
{
    size_t counts[] = {MOST_COUNT, MOST_COUNT, MOST_COUNT, MOST_COUNT};
    walker self = {rank, size, 0, false, false, NULL, {0}};
    row inputs;
    row outputs;

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    row_init(&self, &inputs, size, counts, false);
    row_init(&self, &outputs, size, counts, false);
    dl_call args = {
        .op = DL_ALL_GATHER, .tensor = inputs.tensors[0], .outputs = outputs.tensors};
    dl_op_context op = next_op(&self, DL_ALL_GATHER, &args.tensor);
    if (rank == 3) {
        dl_board_begin(&all.boards[3], &op);
        CHECK_OK(dl_board_arrive(&all.boards[3]));
        boards_cut(&all, 3);
    } else {
        int64_t start = dl_now();
        CHECK_STATUS(dl_all_gather_board(&self.exchange, &op, &args), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "rank 3 (pid 103 on host h)");
        CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
        dl_board_break(&all.boards[rank], all.boards[rank].op);
    }
    row_fini(&inputs);
    row_fini(&outputs);
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(a_rank_lost_in_the_middle_is_named)
{
    boards_init(&all, 4, CHUNK, false);
    dl_run_ranks(4, stop_in_the_middle, NULL);
    boards_fini(&all);
}

static void
abort_in_the_middle(int rank, int size, void *unused)
{
    size_t counts[] = {MOST_COUNT, MOST_COUNT};
    walker self = {rank, size, 0, false, false, NULL, {0}};
    dl_error cause = {.status = DL_CANCELLED, .text = "enough"};
    row blocks;

    (void)unused;
    CHECK_OK(dl_exchange_init(&self.exchange, &all.boards[rank]));
    row_init(&self, &blocks, size, counts, false);
    dl_call args = {.op = DL_REDUCE_SCATTER,
                    .inputs = blocks.tensors,
                    .tensor = blocks.tensors[rank],
                    .reduction = DL_SUM};
    dl_op_context op = next_op(&self, DL_REDUCE_SCATTER, &args.tensor);
    if (rank == 1) {
        dl_board_begin(&all.boards[1], &op);
        CHECK_OK(dl_board_arrive(&all.boards[1]));
        dl_board_abort(&all.boards[1], &cause);
    } else {
        CHECK_STATUS(
            dl_reduce_scatter_board(&self.exchange, &op, &args, &blocks.tensors[rank]),
            DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "enough");
    }
    row_fini(&blocks);
    dl_exchange_fini(&self.exchange);
}

CHECK_CASE(an_abort_during_an_operation_is_reported)
{
    boards_init(&all, 2, CHUNK, false);
    dl_run_ranks(2, abort_in_the_middle, NULL);
    boards_fini(&all);
}
