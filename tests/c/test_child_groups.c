/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups made out of another one, without meeting again. */
#include "groups.h"

#include <sys/wait.h>
#include <unistd.h>

#define SIZE 4

static dl_store *store;

static dl_status
try_child(dl_group *parent, const char *name, const int *ranks, int size,
          dl_group **child)
{
    dl_group_options options = {.name = name,
                                .backend = "gloo",
                                .size = size,
                                .timeout = GROUP_PATIENCE,
                                .parent = parent,
                                .parent_ranks = ranks};

    while (options.rank < size && ranks[options.rank] != dl_group_rank(parent)) {
        options.rank++;
    }
    return dl_group_new(&options, NULL, child);
}

static dl_group *
child_of(dl_group *parent, const char *name, const int *ranks, int size)
{
    dl_group *child = NULL;

    CHECK_OK(try_child(parent, name, ranks, size, &child));
    return child;
}

static void
check_sum(dl_group *group, int64_t mine, int64_t sum)
{
    int64_t data[3] = {mine, mine, mine};

    CHECK_OK(all_reduce(group, data, 3));
    CHECK_EQUAL(data[2], sum);
}

static void
run_children(int rank, int size, void *unused)
{
    dl_group *world = join_group(store, "0", rank, size);
    int odd[] = {3, 1}, even[] = {2, 0}, first[] = {1, 0}, all[] = {3, 1, 2, 0};
    const int *half = rank % 2 ? odd : even;

    (void)unused;
    /* Making a child needs no other rank to be present. */
    dl_group *child = child_of(world, rank % 2 ? "odd" : "even", half, 2);
    CHECK_EQUAL(dl_group_rank(child), half[0] == rank ? 0 : 1);
    check_sum(child, rank, rank % 2 ? 4 : 2);
    dl_group *whole = child_of(world, "all", all, 4);
    check_sum(whole, rank, 6);
    /* Of a child, whose ranks are counted in its own way: again 1 and 3, or 0 and 2. */
    dl_group *grandchild = child_of(child, rank % 2 ? "odd" : "even", first, 2);
    CHECK_EQUAL(dl_group_rank(grandchild), half[1] == rank ? 0 : 1);
    check_sum(grandchild, rank, rank % 2 ? 4 : 2);
    dl_group *single = child_of(world, "single", &rank, 1);
    check_sum(single, rank, rank);
    /* Child groups outlive the group from which they were made. */
    end_group(world);
    end_group(child);
    check_sum(grandchild, rank, rank % 2 ? 4 : 2);
    check_sum(whole, rank, 6);
    end_group(grandchild);
    end_group(whole);
    end_group(single);
}

CHECK_CASE(children_need_no_store)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(SIZE, run_children, NULL);
    dl_store_unref(store);
}

/* A name can be used again once its group has ended on all ranks. */
static void
run_again(int rank, int size, void *unused)
{
    dl_group *world = join_group(store, "0", rank, size);
    int ranks[] = {0, 1};

    (void)unused;
    for (int turn = 0; turn < 200; turn++) {
        dl_group *child = child_of(world, "child", ranks, 2);
        check_sum(child, turn, 2 * turn);
        end_group(child);
        CHECK_OK(dl_group_barrier(world, soon()));
    }
    end_group(world);
}

CHECK_CASE(names_and_memory_can_be_used_again)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(2, run_again, NULL);
    dl_store_unref(store);
}

static void
run_with_failures(int rank, int size, void *unused)
{
    dl_group *world = join_group(store, "0", rank, size);
    int some[] = {0, 2}, all[] = {0, 1, 2}, unknown[] = {0, 7};
    dl_group *child;

    (void)unused;
    if (rank == 0) {
        CHECK_STATUS(try_child(world, "bad", unknown, 2, &child), DL_INVALID);
        CHECK_TEXT(dl_last_error()->text,
                   "joining group bad as rank 0 of 2: group 0 has "
                   "no rank 7");
        child = child_of(world, "lonely", some, 2);
        CHECK_STATUS(dl_group_barrier(child, dl_deadline_after(50 * DL_MILLISECOND)),
                     DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, "barrier #1 in group lonely timed out");
        CHECK_CONTAINS(dl_last_error()->text, "waiting for rank 1 (pid ");
        CHECK_CONTAINS(dl_last_error()->text, "has not begun any operation");
        end_group(child);
    }
    /* The failure of a child does not affect other groups. */
    check_sum(world, 1, 3);
    dl_group_close(world);
    CHECK_STATUS(try_child(world, "late", all, 3, &child), DL_CLOSED);
    dl_group_unref(world);
}

CHECK_CASE(failures_stay_in_the_child)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(3, run_with_failures, NULL);
    dl_store_unref(store);
}

/* A member that dies between two operations of the child is named there. */
static void
run_process(dl_store *shared, int rank)
{
    dl_group *world = join_group(shared, "0", rank, 3);
    int ranks[] = {2, 1};

    if (rank > 0) {
        dl_group *child = child_of(world, "pair", ranks, 2);
        check_sum(child, rank, 3);
        if (rank == 1) {
            kill(getpid(), SIGKILL);
        }
        CHECK_STATUS(dl_group_barrier(child, soon()), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "barrier #2 in group pair: rank 1 (pid ");
        end_group(child);
        end_group(world);
    } else {
        CHECK_STATUS(dl_group_barrier(world, soon()), DL_PEER_LOST);
        end_group(world);
    }
}

CHECK_CASE(a_lost_member_is_named_by_its_rank_in_the_child)
{
    char path[] = "/tmp/distlite-children-XXXXXX";
    pid_t pids[3];
    int fd = mkstemp(path);

    CHECK(fd >= 0);
    close(fd);
    for (int rank = 0; rank < 3; rank++) {
        pids[rank] = fork();
        CHECK(pids[rank] >= 0);
        if (pids[rank] == 0) {
            CHECK_OK(dl_file_store_new(path, 3, &store));
            run_process(store, rank);
            dl_store_unref(store);
            exit(0);
        }
    }
    for (int rank = 0; rank < 3; rank++) {
        int status;
        CHECK(waitpid(pids[rank], &status, 0) == pids[rank]);
        CHECK(rank == 1 ? WIFSIGNALED(status) : status == 0);
    }
    unlink(path);
}
