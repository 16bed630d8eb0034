/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "groups.h"

enum { RANKS = 3, BLOCK = 512 };

static dl_store *store;

/* Blocks of one rank, which has its own in its place. */
typedef struct blocks {
    uint8_t bytes[RANKS][BLOCK];
    dl_tensor views[RANKS];
    dl_call call;
} blocks;

static void
lay_out(blocks *self, dl_op_type op, int rank, int root)
{
    memset(self->bytes, 0, sizeof self->bytes);
    for (int i = 0; i < RANKS; i++) {
        self->views[i] = tensor_of(self->bytes[i], BLOCK, DL_UINT8);
    }
    memset(self->bytes[rank], 'a' + rank, BLOCK);
    self->call = (dl_call){.op = op,
                           .has_objects = true,
                           .root = root,
                           .tensor = self->views[rank],
                           .outputs = op == DL_BROADCAST ? NULL : self->views};
}

static void
exchange_all(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "0", rank, size);
    blocks mine;

    (void)unused;
    lay_out(&mine, DL_BROADCAST, rank, 1);
    CHECK_OK(dl_group_run(group, &mine.call, soon()));
    CHECK_EQUAL(mine.bytes[rank][BLOCK - 1], 'b');
    lay_out(&mine, DL_ALL_GATHER, rank, -1);
    CHECK_OK(dl_group_run(group, &mine.call, soon()));
    for (int other = 0; other < size; other++) {
        CHECK_EQUAL(mine.bytes[other][0], 'a' + other);
        CHECK_EQUAL(mine.bytes[other][BLOCK - 1], 'a' + other);
    }
    lay_out(&mine, DL_BROADCAST, rank, RANKS);
    CHECK_STATUS(dl_group_run(group, &mine.call, soon()), DL_INVALID);
    end_group(group);
}

CHECK_CASE(every_rank_gets_the_blocks_for_it)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(RANKS, exchange_all, NULL);
    dl_store_unref(store);
}

/* Blocks of objects are no arrays, and those of other functions differ as well. */
static void
differ(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "0", rank, size);
    blocks mine;

    (void)unused;
    lay_out(&mine, DL_ALL_GATHER, rank, -1);
    mine.call.has_objects = rank != 1;
    CHECK_STATUS(dl_group_run(group, &mine.call, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "all_gather_object()");
    CHECK_CONTAINS(dl_last_error()->text, "all_gather(512 x uint8)");
    end_group(group);
}

CHECK_CASE(ranks_that_call_another_function_are_named)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(RANKS, differ, NULL);
    dl_store_unref(store);
}
