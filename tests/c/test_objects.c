/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "groups.h"

enum { RANKS = 3, LARGE_HEADER = 300, SMALL_HEADER = 32 };

static dl_store *store;

/* Cards of one rank: its own is in its place, the others are to come. */
typedef struct headers {
    uint8_t bytes[RANKS][LARGE_HEADER];
    dl_tensor views[RANKS];
    dl_call call;
} headers;

static void
lay_out(headers *self, dl_op_type op, int rank, int root)
{
    memset(self->bytes, 0, sizeof self->bytes);
    for (int i = 0; i < RANKS; i++) {
        size_t size = root < 0 || i == root ? LARGE_HEADER : SMALL_HEADER;
        self->views[i] = tensor_of(self->bytes[i], size, DL_UINT8);
    }
    memset(self->bytes[rank], 'a' + rank, self->views[rank].count);
    self->call = (dl_call){
        .op = op, .root = root, .tensor = self->views[rank], .outputs = self->views};
}

static void
exchange_all(int rank, int size, void *unused)
{
    static const dl_op_type ops[] = {DL_ALL_GATHER_OBJECTS, DL_BROADCAST_OBJECTS,
                                     DL_GATHER_OBJECTS, DL_SCATTER_OBJECTS};
    dl_group *group = join_group(store, "0", rank, size);
    headers mine;

    (void)unused;
    for (int i = 0; i < 4; i++) {
        lay_out(&mine, ops[i], rank, i == 0 ? -1 : i - 1);
        CHECK_OK(dl_group_run(group, &mine.call, soon()));
        for (int other = 0; other < size; other++) {
            size_t last = mine.views[other].count - 1;
            CHECK_EQUAL(mine.bytes[other][0], 'a' + other);
            CHECK_EQUAL(mine.bytes[other][last], 'a' + other);
        }
    }
    lay_out(&mine, DL_BROADCAST_OBJECTS, rank, 0);
    mine.call.root = RANKS;
    CHECK_STATUS(dl_group_run(group, &mine.call, soon()), DL_INVALID);
    end_group(group);
}

CHECK_CASE(every_rank_gets_every_header)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(RANKS, exchange_all, NULL);
    dl_store_unref(store);
}

/* Rank 1 reads the others' headers as headers of another operation. */
static void
differ(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "0", rank, size);
    dl_op_type op = rank == 1 ? DL_SCATTER_OBJECTS : DL_BROADCAST_OBJECTS;
    headers mine;

    (void)unused;
    lay_out(&mine, op, rank, 2);
    CHECK_STATUS(dl_group_run(group, &mine.call, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "scatter_object_list(from rank 2)");
    CHECK_CONTAINS(dl_last_error()->text, "broadcast_object_list(from rank 2)");
    end_group(group);
}

CHECK_CASE(ranks_that_call_another_function_are_named)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(RANKS, differ, NULL);
    dl_store_unref(store);
}
