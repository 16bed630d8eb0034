/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>

#include "boards.h"
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"

/* Small, so that little data takes many rounds. */
#define CHUNK 512

typedef dl_status (*algorithm)(dl_board *, const dl_op_context *, const dl_call *);

static test_boards all;

static const dl_dtype dtypes[] = {DL_FLOAT32, DL_FLOAT64, DL_INT32, DL_INT64};
static const dl_reduce_op ops[] = {DL_SUM, DL_AVG, DL_PRODUCT, DL_MIN, DL_MAX};

/* Distinct by rank and place, and exact in every dtype up to a product of 8. */
static double
value_of(int rank, size_t i, dl_reduce_op op)
{
    if (op == DL_PRODUCT) {
        return (double)((i + (size_t)rank) % 4) + (rank == 0 ? 0.0 : 1.0);
    }
    return (double)((i * 7 + (size_t)rank * 13) % 101) - 50.0;
}

static double
expected_of(int size, size_t i, dl_reduce_op op)
{
    double result = value_of(0, i, op);

    for (int rank = 1; rank < size; rank++) {
        double value = value_of(rank, i, op);
        switch (op) {
        case DL_PRODUCT:
            result *= value;
            break;
        case DL_MIN:
            result = fmin(result, value);
            break;
        case DL_MAX:
            result = fmax(result, value);
            break;
        default:
            result += value;
        }
    }
    return result;
}

static void
store_value(void *data, size_t i, dl_dtype dtype, double value)
{
    switch (dtype) {
    case DL_FLOAT32:
        ((float *)data)[i] = (float)value;
        break;
    case DL_FLOAT64:
        ((double *)data)[i] = value;
        break;
    case DL_INT32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    default:
        ((int64_t *)data)[i] = (int64_t)value;
    }
}

static bool
has_value(const void *data, size_t i, dl_dtype dtype, double value)
{
    switch (dtype) {
    case DL_FLOAT32:
        return ((const float *)data)[i] == (float)value;
    case DL_FLOAT64:
        return ((const double *)data)[i] == value;
    case DL_INT32:
        return ((const int32_t *)data)[i] == (int32_t)value;
    default:
        return ((const int64_t *)data)[i] == (int64_t)value;
    }
}

/* One rank's part in a row of operations on one board. */
typedef struct walker {
    int rank;
    int size;
    uint64_t sequence;
} walker;

static dl_call
args_of(void *data, size_t count, dl_dtype dtype, dl_reduce_op op)
{
    size_t item_size = dl_dtype_size(dtype);

    return (dl_call){.op = DL_ALL_REDUCE,
                     .tensor = {.data = data,
                                .count = count,
                                .item_size = item_size,
                                .dtype = dtype,
                                .is_contiguous = true,
                                .is_writable = true},
                     .reduction = op};
}

static void
run(walker *self, algorithm reduce, const dl_call *args)
{
    dl_op_context context = test_op(++self->sequence, DL_ALL_REDUCE, 10 * DL_SECOND);

    context.fingerprint.count_low = (uint32_t)(args->tensor.count);
    context.fingerprint.dtype = (uint8_t)args->tensor.dtype;
    context.fingerprint.detail = (uint32_t)args->reduction;
    CHECK_OK(reduce(&all.boards[self->rank], &context, args));
}

static void
check_case(walker *self, algorithm reduce, size_t count, dl_dtype dtype,
           dl_reduce_op op)
{
    double data[1024 + 1];
    dl_call args = args_of(data, count, dtype, op);

    CHECK(count <= 1024);
    memset(data, 0xee, sizeof data);
    for (size_t i = 0; i < count; i++) {
        store_value(data, i, dtype, value_of(self->rank, i, op));
    }
    run(self, reduce, &args);
    for (size_t i = 0; i < count; i++) {
        double expected = expected_of(self->size, i, op);
        if (op == DL_AVG) {
            /* As the kernel divides: in the array's own precision. */
            expected = dtype == DL_FLOAT32
                           ? (double)((float)expected / (float)self->size)
                           : expected / self->size;
        }
        if (!has_value(data, i, dtype, expected)) {
            DL_CHECK_FAIL("rank %d of %d, %s of %zu x %s: element %zu is not %g",
                          self->rank, self->size, dl_reduce_op_name(op), count,
                          dl_dtype_name(dtype), i, expected);
        }
    }
    CHECK_EQUAL(((uint8_t *)data)[count * dl_dtype_size(dtype)], 0xee);
}

static void
check_grid(walker *self, algorithm reduce, const size_t *counts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
                if (ops[o] != DL_AVG || !dl_dtype_is_integer(dtypes[d])) {
                    check_case(self, reduce, counts[i], dtypes[d], ops[o]);
                }
            }
        }
    }
}

static void
check_lines(int rank, int size, void *unused)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 12, DL_BOARD_PAYLOAD / 8};
    walker self = {rank, size, 0};

    (void)unused;
    check_grid(&self, dl_all_reduce_line, counts, sizeof counts / sizeof *counts);
}

static void
check_slots(int rank, int size, void *unused)
{
    static const size_t counts[] = {1, 13, 15, 16, 17, 31, 33, 63, CHUNK / 8};
    walker self = {rank, size, 0};

    (void)unused;
    check_grid(&self, dl_all_reduce_slot, counts, sizeof counts / sizeof *counts);
}

/* Around lines, blocks and chunks; fewer elements than ranks, many rounds. */
static void
check_chunks(int rank, int size, void *unused)
{
    static const size_t counts[] = {1,   5,   15,  16,  17,  63,  64,  65,  127,
                                    128, 129, 191, 192, 255, 257, 500, 1024};
    walker self = {rank, size, 0};

    (void)unused;
    check_grid(&self, dl_all_reduce_chunks, counts, sizeof counts / sizeof *counts);
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

CHECK_CASE(on_lines)
{
    on_all_sizes(check_lines);
}

CHECK_CASE(through_slots)
{
    on_all_sizes(check_slots);
}

CHECK_CASE(in_chunks)
{
    on_all_sizes(check_chunks);
}

/* Algorithms in a random order share lines, slots and steps; ranks dawdle. */
static void
check_mixture(int rank, int size, void *unused)
{
    walker self = {rank, size, 0};
    unsigned common = 99;
    unsigned own = (unsigned)rank;

    (void)unused;
    for (int i = 0; i < 150; i++) {
        int kind = rand_r(&common) % 3;
        size_t limit = kind == 0 ? DL_BOARD_PAYLOAD / 8 : kind == 1 ? CHUNK / 8 : 1024;
        size_t count = 1 + (size_t)rand_r(&common) % limit;
        algorithm reduce = kind == 0   ? dl_all_reduce_line
                           : kind == 1 ? dl_all_reduce_slot
                                       : dl_all_reduce_chunks;
        dl_dtype dtype = dtypes[rand_r(&common) % 4];
        for (int pause = rand_r(&own) % 4; pause > 0; pause--) {
            sched_yield();
        }
        check_case(&self, reduce, count, dtype, DL_SUM);
    }
}

CHECK_CASE(one_after_the_other_in_any_order)
{
    on_all_sizes(check_mixture);
}

/* Sums that depend on the order of the additions. */
static void
fill_inexact(float *data, size_t count, int rank)
{
    unsigned seed = (unsigned)rank + 7;

    for (size_t i = 0; i < count; i++) {
        data[i] = (float)(rand_r(&seed) % 100003) * powf(10.0f, (float)(i % 13) - 6.0f);
    }
}

static float inexact[DL_RANKS_LIMIT][3][CHUNK / 4];

static void
reduce_inexact(int rank, int size, void *unused)
{
    static const algorithm ways[] = {dl_all_reduce_line, dl_all_reduce_slot,
                                     dl_all_reduce_chunks};
    walker self = {rank, size, 0};

    (void)unused;
    for (int way = 0; way < 3; way++) {
        size_t count = way == 0 ? DL_BOARD_PAYLOAD / 4 : CHUNK / 4;
        float *data = inexact[rank][way];
        dl_call args = args_of(data, count, DL_FLOAT32, DL_SUM);
        fill_inexact(data, count, rank);
        run(&self, ways[way], &args);
    }
}

CHECK_CASE(bits_are_the_same_on_all_ranks_and_in_all_ways)
{
    boards_init(&all, 7, CHUNK, false);
    dl_run_ranks(7, reduce_inexact, NULL);
    for (int rank = 0; rank < 7; rank++) {
        CHECK(memcmp(inexact[rank][0], inexact[0][0], DL_BOARD_PAYLOAD) == 0);
        CHECK(memcmp(inexact[rank][1], inexact[0][1], CHUNK) == 0);
        CHECK(memcmp(inexact[rank][2], inexact[0][1], CHUNK) == 0);
        CHECK(memcmp(inexact[rank][0], inexact[0][1], DL_BOARD_PAYLOAD) == 0);
    }
    boards_fini(&all);
}

#define REAL DL_BOARD_CHUNK

/* With real chunks and tiles, through the choice by size. */
static void
reduce_large(int rank, int size, void *context)
{
    static const size_t sizes[] = {
        0,     4,      104,          108,          4096,     8196,
        32768, 131076, REAL / 2 - 4, REAL / 2 + 4, REAL + 4, 5 << 19,
    };
    const size_t count_of_sizes = sizeof sizes / sizeof *sizes;
    walker self = {rank, size, 0};
    int32_t *data = malloc(5 << 19);

    (void)context;
    CHECK(data != NULL);
    for (size_t n = 0; n < 3 * count_of_sizes; n++) {
        size_t count = sizes[n * 5 % count_of_sizes] / 4;
        dl_call args = args_of(data, count, DL_INT32, DL_SUM);
        for (size_t i = 0; i < count; i++) {
            data[i] = (int32_t)(i * 3 + (size_t)rank);
        }
        run(&self, dl_all_reduce_select, &args);
        for (size_t i = 0; i < count; i++) {
            CHECK_EQUAL(data[i], (int32_t)(i * 3) * size + size * (size - 1) / 2);
        }
    }
    free(data);
}

CHECK_CASE(real_chunks)
{
    for (int size = 2; size <= 5; size++) {
        boards_init(&all, size, DL_BOARD_CHUNK, size <= 3);
        boards_go_on(&all);
        dl_run_ranks(size, reduce_large, NULL);
        boards_fini(&all);
    }
}

/* Sizes of every magnitude in any order: parts of slots of different sizes follow each
 * other. */
static void
reduce_any_size(int rank, int size, void *context)
{
    walker self = {rank, size, 0};
    int32_t *data = malloc(2 << 20);
    unsigned common = 5;
    unsigned own = (unsigned)rank;

    (void)context;
    CHECK(data != NULL);
    for (int n = 0; n < 150; n++) {
        size_t limit = (size_t)1 << (3 + (unsigned)rand_r(&common) % 17);
        size_t count = 1 + (size_t)rand_r(&common) % limit;
        dl_call args = args_of(data, count, DL_INT32, DL_SUM);
        for (size_t i = 0; i < count; i++) {
            data[i] = (int32_t)(i * 3 + (size_t)rank + (size_t)n);
        }
        for (int pause = rand_r(&own) % 4; pause > 0; pause--) {
            sched_yield();
        }
        run(&self, dl_all_reduce_select, &args);
        for (size_t i = 0; i < count; i++) {
            CHECK_EQUAL(data[i], ((int32_t)(i * 3) + n) * size + size * (size - 1) / 2);
        }
    }
    free(data);
}

CHECK_CASE(any_size_after_any_other)
{
    for (int size = 2; size <= 3; size++) {
        boards_init(&all, size, DL_BOARD_CHUNK, true);
        dl_run_ranks(size, reduce_any_size, NULL);
        boards_fini(&all);
    }
}

CHECK_CASE(real_chunks_past_the_caches)
{
    for (int size = 2; size <= 4; size++) {
        boards_init(&all, size, DL_BOARD_CHUNK, size == 2);
        boards_stream(&all);
        dl_run_ranks(size, reduce_large, NULL);
        boards_fini(&all);
    }
}

/* A rank that stops in the middle of an operation is missed by all others. */
static void
die_in_the_middle(int rank, int size, void *unused)
{
    int32_t data[1024] = {0};
    walker self = {rank, size, 0};
    dl_call args = args_of(data, 1024, DL_INT32, DL_SUM);
    dl_op_context context = test_op(1, DL_ALL_REDUCE, -1);

    (void)unused;
    context.fingerprint.count_low = 1024;
    context.fingerprint.dtype = DL_INT32;
    if (rank == 1) {
        dl_board_begin(&all.boards[1], &context);
        CHECK_OK(dl_board_arrive(&all.boards[1]));
        boards_cut(&all, 1);
        return;
    }
    int64_t start = dl_now();
    CHECK_STATUS(dl_all_reduce_chunks(&all.boards[self.rank], &context, &args),
                 DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid 101 on host h)");
    dl_board_break(&all.boards[rank], all.boards[rank].op);
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
}

CHECK_CASE(a_rank_lost_in_the_middle_is_named)
{
    boards_init(&all, 4, CHUNK, false);
    dl_run_ranks(4, die_in_the_middle, NULL);
    boards_fini(&all);
}
