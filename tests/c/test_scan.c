/* SPDX-License-Identifier: BSD-3-Clause */
#include "boards.h"
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/limits.h"
#include "pg/cpu/algorithms/fold.h"

/* Small, so that little data takes many rounds. */
#define CHUNK 512
#define LARGER_CHUNK 4096
#define MOST ((size_t)70000)

typedef dl_status (*algorithm)(dl_board *, const dl_op_context *, const dl_call *);

static test_boards all;

/* Bytes wrap around, and results differ if ranks come in another order or number. */
static uint8_t
value_of(int rank, size_t i)
{
    return (uint8_t)(i * 7 + (size_t)rank * 13 + 1);
}

static uint8_t
prefix_of(int rank, size_t i, bool is_exclusive)
{
    uint8_t result = value_of(0, i);

    for (int r = 1; r < rank + !is_exclusive; r++) {
        result = (uint8_t)(result + value_of(r, i));
    }
    return result;
}

static dl_call
call_of(uint8_t *data, size_t count, bool is_exclusive)
{
    return (dl_call){.op = is_exclusive ? DL_EXSCAN : DL_SCAN,
                     .tensor = {.data = data,
                                .count = count,
                                .item_size = 1,
                                .dtype = DL_UINT8,
                                .is_contiguous = true,
                                .is_writable = true},
                     .reduction = DL_SUM};
}

static void
check_case(int rank, uint64_t sequence, algorithm scan, size_t count, bool is_exclusive)
{
    uint8_t data[MOST + 1];
    dl_op_context context =
        test_op(sequence, is_exclusive ? DL_EXSCAN : DL_SCAN, 10 * DL_SECOND);
    dl_call args = call_of(data, count, is_exclusive);

    memset(data, 0xee, sizeof data);
    for (size_t i = 0; i < count; i++) {
        data[i] = value_of(rank, i);
    }
    context.fingerprint.count_low = (uint32_t)count;
    CHECK_OK(scan(&all.boards[rank], &context, &args));
    for (size_t i = 0; i < count; i++) {
        CHECK_EQUAL(data[i], prefix_of(rank, i, is_exclusive));
    }
    CHECK_EQUAL(data[count], 0xee);
}

/* Algorithms in a random order share lines, slots and steps; ranks dawdle. */
static void
check_mixture(int rank, int size, void *context)
{
    static const algorithm scans[] = {dl_scan_direct, dl_scan_direct, dl_scan_chunks};
    size_t chunk = all.boards[rank].chunk;
    size_t limits[] = {DL_BOARD_PAYLOAD, 3 * chunk, 2 * chunk};
    unsigned common = 99;
    unsigned own = (unsigned)rank;

    (void)size;
    (void)context;
    for (uint64_t i = 1; i <= 300; i++) {
        int kind = rand_r(&common) % 3;
        size_t count = (size_t)rand_r(&common) % limits[kind] + 1;
        bool is_exclusive = rand_r(&common) % 2;
        for (int pause = rand_r(&own) % 4; pause > 0; pause--) {
            sched_yield();
        }
        check_case(rank, i, scans[kind], count, is_exclusive);
    }
}

CHECK_CASE(on_lines_through_slots_and_in_chunks)
{
    static const int sizes[] = {2, 3, 5, 8};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        boards_init(&all, sizes[i], CHUNK, false);
        dl_run_ranks(sizes[i], check_mixture, NULL);
        boards_fini(&all);
    }
}

/* Of sizes around lines and rounds, with the bytes in any place of the slots. */
static void
check_pairs(int rank, int size, void *context)
{
    static const size_t counts[] = {1, 63, 64, 65, MOST - 1, MOST};

    (void)size;
    (void)context;
    for (uint64_t i = 0; i < 60; i++) {
        size_t count = counts[i % (sizeof counts / sizeof *counts)];
        check_case(rank, i + 1, i % 5 == 4 ? dl_scan_chunks : dl_scan_direct, count,
                   i % 2 == 0);
    }
}

CHECK_CASE(of_two_ranks)
{
    boards_init(&all, 2, DL_BOARD_CHUNK, true);
    dl_run_ranks(2, check_pairs, NULL);
    boards_fini(&all);
}

CHECK_CASE(through_slots_and_in_chunks_past_the_caches)
{
    boards_init(&all, 3, LARGER_CHUNK, false);
    boards_stream(&all);
    dl_run_ranks(3, check_mixture, NULL);
    boards_fini(&all);
}

/* Prefixes cut in two between ranks are those of all ranks at once, for each kind of
 * type, over more than a tile. */
static void
check_prefixes(dl_dtype dtype, bool is_exclusive)
{
    enum { RANKS = 5, COUNT = 9001, CUT = 2 };
    size_t item_size = dl_dtype_size(dtype);
    size_t size = COUNT * item_size;
    uint8_t *whole = calloc(RANKS, size);
    uint8_t *parts = calloc(RANKS, size);
    uint8_t *carry = calloc(COUNT, sizeof(double));
    dl_call like = {.op = DL_ALL_REDUCE,
                    .tensor = {.item_size = item_size, .dtype = dtype},
                    .reduction = DL_SUM};
    dl_fold fold = dl_fold_of(&like, RANKS);
    float one = 1.001f;

    for (size_t i = 0; i < (size_t)RANKS * COUNT; i++) {
        float value = (float)(i % 97) * one;
        if (dtype == DL_FLOAT16) {
            dl_reduce_narrow(whole + i * item_size, dtype, &value, 1);
        } else {
            memcpy(whole + i * item_size, &value, sizeof value);
        }
    }
    memcpy(parts, whole, RANKS * size);
    dl_prefixes prefixes = {
        .first = whole, .stride = size, .count = RANKS, .is_exclusive = is_exclusive};
    dl_fold_prefixes(&fold, &prefixes, size);
    prefixes.first = parts;
    prefixes.count = CUT;
    prefixes.after = carry;
    dl_fold_prefixes(&fold, &prefixes, size);
    prefixes.first = parts + CUT * size;
    prefixes.count = RANKS - CUT;
    prefixes.before = carry;
    prefixes.after = NULL;
    dl_fold_prefixes(&fold, &prefixes, size);
    CHECK(memcmp(whole, parts, RANKS * size) == 0);
    free(whole);
    free(parts);
    free(carry);
}

CHECK_CASE(prefixes_go_on_from_a_carry)
{
    for (int is_exclusive = 0; is_exclusive < 2; is_exclusive++) {
        check_prefixes(DL_FLOAT32, is_exclusive);
        check_prefixes(DL_FLOAT16, is_exclusive);
    }
}

/* One thread plays all ranks, and each ends before the next one begins. */
static void
check_ahead(bool has_cores, size_t most)
{
    size_t counts[] = {1, 64, most - 1, most};

    boards_init(&all, 3, CHUNK, has_cores);
    for (int rank = 0; rank < 3; rank++) {
        for (uint64_t i = 0; i < 40; i++) {
            check_case(rank, i + 1, dl_scan_direct, counts[i % 4], i % 3 == 0);
        }
    }
    boards_fini(&all);
}

CHECK_CASE(few_bytes_do_not_wait_for_later_ranks)
{
    check_ahead(true, DL_BOARD_PAYLOAD);
}

CHECK_CASE(eager_buffers_do_not_wait_for_later_ranks)
{
    check_ahead(false, DL_SCAN_EAGER_LIMIT_WHEN_SHARING);
}

CHECK_CASE(few_bytes_wait_for_every_rank_before)
{
    uint8_t data[1] = {1};
    dl_op_context context = test_op(1, DL_SCAN, 20 * DL_MILLISECOND);
    dl_call args = call_of(data, 1, false);

    boards_init(&all, 3, CHUNK, false);
    CHECK_OK(dl_scan_direct(&all.boards[0], &context, &args));
    CHECK_STATUS(dl_scan_direct(&all.boards[2], &context, &args), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "waiting for rank 1 (pid 101 on host h)");
    boards_fini(&all);
}

CHECK_CASE(every_missing_rank_before_is_named)
{
    uint8_t data[1] = {1};
    dl_op_context context = test_op(1, DL_SCAN, 20 * DL_MILLISECOND);
    dl_call args = call_of(data, 1, false);

    boards_init(&all, 4, CHUNK, false);
    CHECK_STATUS(dl_scan_direct(&all.boards[2], &context, &args), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "waiting for rank 0 (pid 100 on host h)");
    CHECK_CONTAINS(dl_last_error()->text, "; rank 1 (pid 101 on host h)");
    CHECK(strstr(dl_last_error()->text, "rank 3") == NULL);
    boards_fini(&all);
}
