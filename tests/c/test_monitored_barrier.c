/* SPDX-License-Identifier: BSD-3-Clause */
#include "groups.h"
#include "store_calls.h"

static dl_store *store;

static void
run_ranks(int size, dl_rank_fn run, void *context)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(size, run, context);
    dl_store_unref(store);
}

static dl_deadline
shortly(void)
{
    return dl_deadline_after(200 * DL_MILLISECOND);
}

static void
set_flag(const char *name)
{
    CHECK_OK(dl_store_set(store, dl_bytes_of(name), DL_LITERAL("1"), soon()));
}

static void
wait_for_flag(const char *name)
{
    dl_bytes key = dl_bytes_of(name);

    CHECK_OK(dl_store_wait(store, &key, 1, soon()));
}

static void
pass(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    int64_t before;
    int64_t after;

    (void)unused;
    CHECK_OK(dl_group_monitored_barrier(group, false, soon()));
    CHECK_OK(dl_group_barrier(group, soon()));
    CHECK_OK(dl_store_num_keys(store, &before, soon()));
    for (int i = 0; i < 10; i++) {
        CHECK_OK(dl_group_monitored_barrier(group, i % 2 == 0, soon()));
    }
    CHECK_OK(dl_group_barrier(group, soon()));
    CHECK_OK(dl_store_num_keys(store, &after, soon()));
    CHECK(after <= before + size);
    end_group(group);
}

CHECK_CASE(all_pass_and_the_store_does_not_grow)
{
    run_ranks(1, pass, NULL);
    run_ranks(2, pass, NULL);
    run_ranks(4, pass, NULL);
}

/* Ranks 1 and 2 come when rank 0 has given up, rank 3 before it begins to count. */
static void
be_late(int rank, int size, void *waits_for_all)
{
    dl_group *group = join_group(store, "g", rank, size);
    bool is_for_all = waits_for_all != NULL;
    const char *missing =
        is_for_all ? "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 200 ms"
                   : "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 200 ms\n"
                     " Original exception: \nranks of group g have not called it: 1, 2";
    char own[64];

    if (rank < 3) {
        wait_for_flag(rank == 0 ? "monitored/1/3" : "given up");
    }
    dl_status status =
        dl_group_monitored_barrier(group, is_for_all, rank == 0 ? shortly() : soon());
    CHECK_STATUS(status, DL_TIMEOUT);
    if (rank == 0) {
        CHECK_TEXT(dl_last_error()->text, missing);
        set_flag("given up");
    } else {
        snprintf(own, sizeof own, "Rank %d successfully reached monitoredBarrier, but",
                 rank);
        CHECK_CONTAINS(dl_last_error()->text, own);
        CHECK_CONTAINS(dl_last_error()->text, "\n Original exception: \n[Rank 0]: ");
        CHECK_CONTAINS(dl_last_error()->text, missing);
    }
    /* The group stays usable. */
    CHECK_OK(dl_group_barrier(group, soon()));
    CHECK_OK(dl_group_monitored_barrier(group, is_for_all, soon()));
    end_group(group);
}

CHECK_CASE(late_ranks_are_named_on_all)
{
    run_ranks(4, be_late, NULL);
    run_ranks(4, be_late, &store);
}

/* Rank 0 comes when another one has given up. */
static void
miss_the_first(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);

    (void)unused;
    if (rank == 0) {
        wait_for_flag("given up");
    }
    CHECK_STATUS(dl_group_monitored_barrier(group, false, shortly()), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text,
                   "]: Rank 0 failed to pass monitoredBarrier in 200 ms (group g): it "
                   "has not called it");
    if (rank == 1) {
        set_flag("given up");
    }
    CHECK_OK(dl_group_monitored_barrier(group, false, soon()));
    end_group(group);
}

CHECK_CASE(a_late_first_rank_gets_an_error)
{
    run_ranks(3, miss_the_first, NULL);
}

/* Rank 0 has come and waits for rank 2, longer than rank 1 would. */
static void
be_patient(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);
    dl_deadline deadline = rank == 1 ? dl_deadline_after(50 * DL_MILLISECOND) : soon();

    (void)unused;
    if (rank == 1) {
        dl_bytes arrival = DL_LITERAL("monitored/1/0");
        CHECK_OK(dl_store_wait(store, &arrival, 1, soon()));
        deadline = dl_deadline_after(50 * DL_MILLISECOND);
    }
    if (rank == 2) {
        nanosleep(&(struct timespec){.tv_nsec = 150 * DL_MILLISECOND}, NULL);
    }
    CHECK_OK(dl_group_monitored_barrier(group, false, deadline));
    end_group(group);
}

CHECK_CASE(while_rank_0_counts_the_others_wait)
{
    run_ranks(3, be_patient, NULL);
}

static void
die(int rank, const rank_processes *all, void *dead)
{
    dl_store *mine = open_file_store(all);
    dl_group *group = join_group(mine, "g", rank, all->size);

    if (rank == *(int *)dead) {
        CHECK_OK(dl_group_monitored_barrier(group, false, soon()));
        raise(SIGKILL);
    }
    CHECK_OK(dl_group_monitored_barrier(group, false, soon()));
    CHECK_STATUS(dl_group_monitored_barrier(group, false, soon()),
                 rank == 0 || *(int *)dead == 0 ? DL_PEER_LOST : DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "exited or was killed");
    CHECK_CONTAINS(dl_last_error()->text, " on host ");
    end_group(group);
    dl_store_unref(mine);
}

CHECK_CASE(ended_ranks_are_not_waited_for)
{
    rank_processes all;
    int dead = 1;

    start_processes(&all, 2, die, &dead);
    join_processes(&all, 2);
    dead = 0;
    start_processes(&all, 2, die, &dead);
    join_processes(&all, 1);
}

static void
close_early(int rank, int size, void *unused)
{
    dl_group *group = join_group(store, "g", rank, size);

    (void)unused;
    if (rank == 1) {
        dl_group_abort(group, "enough");
        CHECK_STATUS(dl_group_monitored_barrier(group, false, soon()), DL_CANCELLED);
    } else {
        CHECK_STATUS(dl_group_monitored_barrier(group, false, soon()), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "enough");
    }
    end_group(group);
}

CHECK_CASE(ranks_that_failed_are_not_waited_for)
{
    run_ranks(2, close_early, NULL);
}
