/* SPDX-License-Identifier: BSD-3-Clause */
#include "groups.h"
#include "pg/group_state.h"
#include "pg/paired_gather.h"

#define MOST 100000
#define MOST_RANKS 9

static dl_store *store;

static void
run_ranks(int size, dl_rank_fn run)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(size, run, NULL);
    dl_store_unref(store);
}

static dl_paired_gather
gather_of(const dl_group *group, void *all, dl_deadline deadline)
{
    return (dl_paired_gather){.cpu = group->host.backend,
                              .what = "the test",
                              .rank = group->rank,
                              .size = group->size,
                              .deadline = deadline,
                              .all = all};
}

/* Gathers bytes that tell their rank, in looks of a millisecond. */
static dl_status
gather_bytes(dl_paired_gather *gather, uint8_t *own, size_t bytes)
{
    bool is_done = false;

    memset(own, gather->rank + 1, bytes);
    dl_status status = dl_paired_gather_begin(gather, (dl_bytes){own, bytes});
    while (status == DL_OK && !is_done) {
        status =
            dl_paired_gather_test(gather, dl_deadline_after(DL_MILLISECOND), &is_done);
    }
    dl_paired_gather_end(gather);
    return status;
}

static void
gather_and_check(int rank, int size, void *context)
{
    static const size_t counts[] = {0, 1, 13, MOST};
    dl_group *group = join_group(store, "all", rank, size);
    uint8_t *all = calloc(MOST_RANKS, MOST);
    uint8_t *own = calloc(1, MOST);

    (void)context;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        dl_paired_gather gather = gather_of(group, all, soon());
        CHECK_OK(gather_bytes(&gather, own, counts[i]));
        for (size_t at = 0; at < (size_t)size * counts[i]; at++) {
            CHECK_EQUAL(all[at], at / counts[i] + 1);
        }
    }
    end_group(group);
    free(own);
    free(all);
}

CHECK_CASE(every_rank_gets_the_bytes_of_all)
{
    for (int size = 1; size <= MOST_RANKS; size += size < 5 ? 1 : 2) {
        run_ranks(size, gather_and_check);
    }
}

static void
differ(int rank, int size, void *context)
{
    dl_group *group = join_group(store, "differ", rank, size);
    uint8_t own[16], all[3 * sizeof own];

    for (size_t turn = 0; turn < 2; turn++) {
        dl_paired_gather gather = gather_of(group, all, dl_deadline_after(DL_SECOND));
        size_t bytes = rank == 1 ? 4 + 8 * turn : 8;
        CHECK_STATUS(gather_bytes(&gather, own, bytes), DL_MISMATCH);
        CHECK_CONTAINS(dl_last_error()->text, "same version of the library");
        CHECK_CONTAINS(dl_last_error()->text, rank == 1 ? "rank 0" : "rank 1");
        CHECK_OK(dl_group_barrier(group, soon()));
    }
    (void)context;
    end_group(group);
}

CHECK_CASE(ranks_with_fewer_and_with_more_bytes_are_named)
{
    run_ranks(2, differ);
}

static void
be_late(int rank, int size, void *context)
{
    dl_group *group = join_group(store, "late", rank, size);
    uint8_t own[1], all[3];
    dl_paired_gather gather =
        gather_of(group, all, dl_deadline_after(200 * DL_MILLISECOND));

    (void)context;
    if (rank != 2) {
        CHECK_STATUS(gather_bytes(&gather, own, 1), DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text,
                       rank == 1 ? "rank 2 did not join the test within 200ms"
                                 : "rank 2, or one that it waits for, did not join");
    }
    CHECK_OK(dl_group_barrier(group, soon()));
    end_group(group);
}

CHECK_CASE(a_rank_that_does_not_come_is_named)
{
    run_ranks(3, be_late);
}

static void
lack_memory(int rank, int size, void *context)
{
    dl_group *group = join_group(store, "memory", rank, size);
    uint8_t own[8], all[8];
    dl_paired_gather gather = gather_of(group, all, soon());

    (void)context;
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(gather_bytes(&gather, own, sizeof own), DL_NO_MEMORY);
    CHECK(dl_check_allocation_failed());
    end_group(group);
}

CHECK_CASE(no_memory_for_blocks)
{
    run_ranks(1, lack_memory);
}
