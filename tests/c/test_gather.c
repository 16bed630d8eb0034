/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/gather.h"

#include "traffics.h"

#define PATIENCE (30 * DL_SECOND)

static test_traffics all;

CHECK_CASE(neighbours_are_those_of_a_tree)
{
    int ranks[DL_GATHER_NEIGHBOURS];

    CHECK_EQUAL(dl_gather_neighbours(0, 1, ranks), 0);
    CHECK_EQUAL(dl_gather_neighbours(1, 4, ranks), 2);
    CHECK_EQUAL(ranks[0], 0);
    CHECK_EQUAL(ranks[1], 3);
    CHECK_EQUAL(dl_gather_neighbours(1, 5, ranks), 3);
    CHECK_EQUAL(ranks[2], 4);
    CHECK_EQUAL(dl_gather_neighbours(4, 9, ranks), 1);
    CHECK_EQUAL(ranks[0], 1);
}

/* Each rank has as many bytes as its number, all of which are its number, and one. */
static void
put_own(dl_buffer *bytes, int rank)
{
    for (int i = 0; i <= rank; i++) {
        dl_buffer_put(bytes, (dl_bytes){(const uint8_t[]){(uint8_t)rank}, 1});
    }
    CHECK_OK(dl_buffer_check(bytes));
}

static void
check_all(const dl_buffer *bytes, int size)
{
    int counts[DL_RANKS_LIMIT] = {0};

    for (size_t i = 0; i < bytes->size; i++) {
        CHECK(bytes->data[i] < size);
        counts[bytes->data[i]]++;
    }
    for (int rank = 0; rank < size; rank++) {
        CHECK_EQUAL(counts[rank], rank + 1);
    }
}

/* What the first rank has goes down unchanged. */
static dl_status
run_gather(dl_gather *self, dl_buffer *bytes)
{
    dl_bytes down[DL_GATHER_NEIGHBOURS];

    DL_TRY(dl_gather_up(self, bytes));
    if (dl_gather_has_parent(self)) {
        DL_TRY(dl_gather_take_down(self, bytes));
    }
    for (int i = 0; i < DL_GATHER_NEIGHBOURS; i++) {
        down[i] = dl_buffer_bytes(bytes);
    }
    return dl_gather_send_down(self, down);
}

static dl_status
gather(int rank, int size, uint64_t sequence, uint64_t limit, dl_buffer *bytes)
{
    dl_op_context op = test_op(sequence, DL_ALL_GATHER, PATIENCE);
    dl_gather self = {
        .traffic = &all.traffics[rank], .rank = rank, .size = size, .limit = limit};

    self.neighbour_count = dl_gather_neighbours(rank, size, self.neighbours);
    dl_traffic_begin(self.traffic, &op);
    dl_status status = run_gather(&self, bytes);
    if (status != DL_OK) {
        dl_traffic_break(self.traffic, self.neighbours, self.neighbour_count);
    }
    dl_traffic_end(self.traffic);
    return status;
}

static void
gather_one(int rank, int size, void *unused)
{
    dl_buffer bytes = {0};

    (void)unused;
    put_own(&bytes, rank);
    CHECK_OK(gather(rank, size, 1, 1 << 20, &bytes));
    check_all(&bytes, size);
    dl_buffer_fini(&bytes);
}

CHECK_CASE(all_get_the_bytes_of_all)
{
    static const int sizes[] = {1, 2, 3, 4, 9, 20};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        traffics_init(&all, sizes[i]);
        dl_run_ranks(sizes[i], gather_one, NULL);
        traffics_fini(&all);
    }
}

static void
gather_too_much(int rank, int size, void *unused)
{
    dl_buffer bytes = {0};

    (void)unused;
    /* Over the connections of an operation before: who has none yet does not learn it. */
    put_own(&bytes, rank);
    CHECK_OK(gather(rank, size, 1, 1 << 20, &bytes));
    dl_buffer_clear(&bytes);
    put_own(&bytes, rank);
    CHECK(gather(rank, size, 2, rank == 1 ? 4 : 1 << 20, &bytes) != DL_OK);
    CHECK_CONTAINS(dl_last_error()->text, " sends more than all ranks have");
    dl_buffer_fini(&bytes);
}

CHECK_CASE(a_rank_that_fails_tells_all)
{
    traffics_init(&all, 9);
    dl_run_ranks(9, gather_too_much, NULL);
    traffics_fini(&all);
}
