/* SPDX-License-Identifier: BSD-3-Clause */
#include "boards.h"
#include "pg/cpu/algorithms/algorithms.h"

static test_boards all;
static uint64_t entered[DL_RANKS_LIMIT]; /* guarded by the barriers */

static void
meet(int rank, int size, void *unused)
{
    (void)unused;
    for (uint64_t sequence = 1; sequence <= 600; sequence++) {
        dl_op_context context = test_op(sequence, DL_BARRIER, 10 * DL_SECOND);
        if (sequence % 2 == 1) {
            entered[rank] = sequence;
        }
        CHECK_OK(dl_barrier_line(&all.boards[rank], &context));
        /* No rank writes between an odd barrier and the next one. */
        for (int peer = 0; sequence % 2 == 1 && peer < size; peer++) {
            CHECK_EQUAL(entered[peer], sequence);
        }
    }
}

CHECK_CASE(no_rank_passes_before_all_have_arrived)
{
    static const int sizes[] = {2, 3, 8};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        boards_init(&all, sizes[i], DL_LINE, sizes[i] == 2);
        dl_run_ranks(sizes[i], meet, NULL);
        boards_fini(&all);
    }
}

CHECK_CASE(a_barrier_alone_times_out)
{
    dl_op_context context = test_op(1, DL_BARRIER, 30 * DL_MILLISECOND);

    boards_init(&all, 2, DL_LINE, true);
    CHECK_STATUS(dl_barrier_line(&all.boards[0], &context), DL_TIMEOUT);
    boards_fini(&all);
}
