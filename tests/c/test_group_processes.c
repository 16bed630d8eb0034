/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups whose ranks are processes that may be killed. */
#include <fcntl.h>
#include <sys/file.h>

#include "base/thread.h"
#include "groups.h"
#include "store/file_log.h"

static void
compute(int rank, const rank_processes *all, void *unused)
{
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "0", rank, all->size);
    static int64_t data[400000];
    static const size_t counts[] = {0, 1, 13, 14, 300, 5000, 131072, 131073, 400000};

    (void)unused;
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        for (size_t i = 0; i < counts[n]; i++) {
            data[i] = (int64_t)i * (rank + 1);
        }
        CHECK_OK(all_reduce(group, data, counts[n]));
        for (size_t i = 0; i < counts[n]; i++) {
            CHECK_EQUAL(data[i], (int64_t)i * all->size * (all->size + 1) / 2);
        }
        dl_call args = {.op = DL_BROADCAST,
                        .tensor = tensor_of(data, counts[n], DL_INT64),
                        .root = all->size - 1};
        for (size_t i = 0; i < counts[n]; i++) {
            data[i] = (int64_t)i * rank;
        }
        CHECK_OK(dl_group_run(group, &args, soon()));
        for (size_t i = 0; i < counts[n]; i++) {
            CHECK_EQUAL(data[i], (int64_t)i * (all->size - 1));
        }
        CHECK_OK(dl_group_barrier(group, soon()));
    }
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(processes_compute_together)
{
    static const int sizes[] = {1, 2, 3, 4, 7, 8};
    rank_processes all;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        start_processes(&all, sizes[i], compute, NULL);
        join_processes(&all, 0);
    }
}

/* State that the ranks of a case about a death share with the process that kills. */
typedef struct death {
    int victim;
    int ready[2];  /* a byte from every rank that has joined */
    int killed[2]; /* closed once the victim is dead */
    bool has_grandchild;
} death;

static void
say_ready(const death *all)
{
    CHECK(write(all->ready[1], "!", 1) == 1);
}

static void
leave_a_grandchild(const death *all)
{
    if (all->has_grandchild && fork() == 0) {
        for (;;) {
            pause();
        }
    }
}

/* Works until the victim is missed, which must be within a second of its death. */
static void
work_until_death(int rank, const rank_processes *all, void *context)
{
    const death *death = context;
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "0", rank, all->size);
    static int64_t data[300000];
    unsigned seed = 11;
    dl_status status = DL_OK;
    char culprit[64];
    char byte;

    close(death->killed[1]);
    leave_a_grandchild(death);
    say_ready(death);
    while (status == DL_OK) {
        size_t count = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 2 ? 13 : 300000);
        status = all_reduce(group, data, count);
    }
    CHECK_EQUAL(status, DL_PEER_LOST);
    snprintf(culprit, sizeof culprit, "rank %d (pid ", death->victim);
    CHECK_CONTAINS(dl_last_error()->text, culprit);
    CHECK_CONTAINS(dl_last_error()->text, "exited or was killed");
    /* Blocks for good if the error came before the death. */
    CHECK(read(death->killed[0], &byte, 1) == 0);
    CHECK_STATUS(dl_group_barrier(group, soon()), DL_PEER_LOST);
    end_group(group);
    dl_store_unref(store);
}

static void
check_death(int size, int victim, int64_t delay, bool has_grandchild)
{
    death death = {.victim = victim, .has_grandchild = has_grandchild};
    rank_processes all;
    char bytes[DL_RANKS_LIMIT];

    CHECK(pipe(death.ready) == 0 && pipe(death.killed) == 0);
    start_processes(&all, size, work_until_death, &death);
    close(death.killed[0]);
    for (int i = 0; i < size; i++) {
        CHECK(read(death.ready[0], bytes, 1) == 1);
    }
    CHECK_OK(dl_sleep_until(dl_deadline_after(delay)));
    CHECK(kill(all.pids[victim], SIGKILL) == 0);
    close(death.killed[1]);
    int64_t start = dl_now();
    join_processes(&all, UINT64_C(1) << victim);
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
    close(death.ready[0]);
    close(death.ready[1]);
}

CHECK_CASE(a_killed_rank_is_named_by_all)
{
    unsigned seed = (unsigned)getpid();

    for (int round = 0; round < 16; round++) {
        int size = 2 + round % 4;
        check_death(size, round % size, rand_r(&seed) % 20 * DL_MILLISECOND, false);
    }
}

CHECK_SLOW_CASE(a_killed_rank_is_named_by_all_every_time)
{
    unsigned seed = (unsigned)getpid();

    for (int round = 0; round < 200; round++) {
        int size = 2 + round % 4;
        check_death(size, round % size, rand_r(&seed) % 20000 * INT64_C(1000), false);
    }
}

CHECK_CASE(a_grandchild_does_not_hide_a_death)
{
    for (int victim = 0; victim < 3; victim++) {
        check_death(3, victim, 5 * DL_MILLISECOND, true);
    }
}

/* Exits without a notice, as a rank that raised an error. */
static void
exit_early(int rank, const rank_processes *all, void *unused)
{
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "0", rank, all->size);
    int64_t data = 1;
    char culprit[96];

    (void)unused;
    CHECK_OK(all_reduce(group, &data, 1));
    if (rank == 1) {
        _exit(0);
    }
    int64_t start = dl_now();
    CHECK_STATUS(all_reduce(group, &data, 1), DL_PEER_LOST);
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
    CHECK_CONTAINS(dl_last_error()->text, "all_reduce #2 in group 0: rank 1 (pid ");
    snprintf(culprit, sizeof culprit, "exited or was killed (last seen in #1)");
    CHECK_CONTAINS(dl_last_error()->text, culprit);
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(a_rank_that_exits_is_named)
{
    rank_processes all;

    start_processes(&all, 4, exit_early, NULL);
    join_processes(&all, 0);
}

/* A stopped process is alive: only the deadline ends the wait. */
static void
wait_for_stopped(int rank, const rank_processes *all, void *context)
{
    int(*pipes)[2] = context; /* a byte from rank 2, an end once it is stopped */
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "0", rank, all->size);
    char byte;

    close(pipes[1][1]);
    CHECK_OK(dl_group_barrier(group, soon()));
    if (rank == 2) {
        CHECK(write(pipes[0][1], "!", 1) == 1);
        for (;;) {
            pause();
        }
    }
    CHECK(read(pipes[1][0], &byte, 1) == 0);
    CHECK_STATUS(dl_group_barrier(group, dl_deadline_after(200 * DL_MILLISECOND)),
                 DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "rank 2 (pid ");
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(a_stopped_rank_is_named_at_the_deadline)
{
    rank_processes all;
    int pipes[2][2];
    char byte;

    CHECK(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0);
    start_processes(&all, 3, wait_for_stopped, pipes);
    CHECK(read(pipes[0][0], &byte, 1) == 1);
    CHECK(kill(all.pids[2], SIGSTOP) == 0);
    CHECK(waitpid(all.pids[0], NULL, WNOHANG) == 0);
    close(pipes[1][1]);
    for (int rank = 0; rank < 2; rank++) {
        int status;
        CHECK(waitpid(all.pids[rank], &status, 0) == all.pids[rank] && status == 0);
    }
    kill(all.pids[2], SIGKILL);
    CHECK(waitpid(all.pids[2], NULL, 0) == all.pids[2]);
    unlink(all.path);
}

/* Killed between publishing its record and joining. */
static void
die_while_joining(int rank, const rank_processes *all, void *unused)
{
    dl_store *store = open_file_store(all);
    dl_group_options options = {.name = "0",
                                .backend = "cpu",
                                .rank = rank,
                                .size = all->size,
                                .timeout = GROUP_PATIENCE};
    dl_group *group;

    (void)unused;
    if (rank == 1) {
        /* Comes early enough to publish, and is gone before rank 0 comes. */
        options.timeout = 0;
        CHECK_STATUS(dl_group_new(&options, store, &group), DL_TIMEOUT);
        CHECK_OK(dl_store_set(store, DL_LITERAL("gone"), DL_LITERAL("1"), soon()));
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(dl_store_wait(store, &DL_LITERAL("gone"), 1, soon()));
    int64_t start = dl_now();
    CHECK_STATUS(dl_group_new(&options, store, &group), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid ");
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
    dl_store_unref(store);
}

CHECK_CASE(a_rank_that_dies_while_joining_is_named)
{
    rank_processes all;

    start_processes(&all, 3, die_while_joining, NULL);
    join_processes(&all, 2);
}

static void
meet_many(int rank, const rank_processes *all, void *unused)
{
    dl_store *store = open_file_store(all);
    dl_group_options options = {.name = "0",
                                .backend = "cpu",
                                .rank = rank,
                                .size = all->size,
                                .timeout = 60 * DL_SECOND};
    dl_group *group;
    int64_t data = rank;

    (void)unused;
    CHECK_OK(dl_group_new(&options, store, &group));
    CHECK_OK(all_reduce(group, &data, 1));
    CHECK_EQUAL(data, all->size * (all->size - 1) / 2);
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(more_ranks_than_cores)
{
    rank_processes all;

    start_processes(&all, 40, meet_many, NULL);
    join_processes(&all, 0);
}

/* Of every second element of `data`: needs a copy, for which there may be no memory. */
static dl_status
reduce_strided(dl_group *group, int64_t *data, size_t count)
{
    int64_t shape[] = {(int64_t)count};
    int64_t strides[] = {2 * sizeof *data};
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, count, DL_INT64),
                    .reduction = DL_SUM};

    args.tensor.is_contiguous = false;
    args.tensor.shape = shape;
    args.tensor.strides = strides;
    return dl_group_run(group, &args, soon());
}

/* Rank 1 has no memory for its `*turn`-th operation, which it therefore never begins; each
 * is larger than all before. */
static void
run_out_of_memory(int rank, const rank_processes *all, void *turn)
{
    const char *hosts = getenv("TEST_HOSTS");
    if (hosts != NULL) {
        setenv("DISTLITE_HOST_HINT", (char[]){hosts[rank], '\0'}, 1);
    }
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "0", rank, all->size);
    static int64_t data[4000];
    int failing = *(const int *)turn;

    for (int i = 1; i < failing; i++) {
        CHECK_OK(reduce_strided(group, data, (size_t)(100 * i)));
    }
    int64_t start = dl_now();
    if (rank == 1) {
        dl_check_fail_allocation_at(1);
    }
    CHECK_STATUS(reduce_strided(group, data, (size_t)(100 * failing)), DL_NO_MEMORY);
    CHECK(rank != 1 || dl_check_allocation_failed());
    CHECK(dl_now() - start < GROUP_PATIENCE / 2);
    if (rank != 1) {
        CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid ");
        CHECK_CONTAINS(dl_last_error()->text, " gave up: out of memory");
    }
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(a_rank_without_memory_for_an_operation_notifies_the_others)
{
    rank_processes all;

    for (int turn = 1; turn <= 3; turn++) {
        start_processes(&all, 3, run_out_of_memory, &turn);
        join_processes(&all, 0);
    }
}

CHECK_CASE(a_rank_without_memory_notifies_ranks_of_other_hosts)
{
    rank_processes all;
    int turn = 2;

    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    for (int late = 0; late < 2; late++) {
        setenv("TEST_HOSTS", late == 0 ? "abab" : "aabb", 1);
        start_processes(&all, 4, run_out_of_memory, &turn);
        join_processes(&all, 0);
    }
}

/* Rank 1 comes when the gate is closed. */
static void
join_at_the_gate(int rank, const rank_processes *all, void *context)
{
    const int *gate = context;
    char byte;

    close(gate[1]);
    CHECK(rank == 0 || read(gate[0], &byte, 1) == 0);
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "0", rank, all->size);
    CHECK_OK(dl_group_barrier(group, soon()));
    end_group(group);
    dl_store_unref(store);
}

static bool
says(int fd, const char *key)
{
    static char text[4096];
    ssize_t size = pread(fd, text, sizeof text, 0);

    CHECK(size >= 0);
    return memmem(text, (size_t)size, key, strlen(key)) != NULL;
}

/* As where many want it on a busy machine: a rank that looks for the others in vain, now
 * and then, has the rest of its timeout for it. */
CHECK_CASE(a_file_that_is_locked_for_long_delays_a_join)
{
    rank_processes all;
    int gate[2];

    CHECK(pipe(gate) == 0);
    start_processes(&all, 2, join_at_the_gate, gate);
    int fd = open(all.path, O_RDWR);
    CHECK(fd >= 0);
    while (!says(fd, "cpu/0")) {
        usleep(1000);
    }
    CHECK(flock(fd, LOCK_EX) == 0);
    usleep(DL_FILE_LOCK_PATIENCE / 1000 * 3);
    close(fd);
    close(gate[1]);
    join_processes(&all, 0);
}

/* Rank 2, of another host, ends without a word, as one does that was told of a failure.
 * Rank 1 gives its reason when rank 0 has had the time to find that out. */
static void
give_a_late_reason(int rank, const rank_processes *all, void *context)
{
    (void)context;
    setenv("DISTLITE_HOST_HINT", rank == 2 ? "b" : "a", 1);
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "0", rank, all->size);
    if (rank == 2) {
        _exit(0);
    }
    if (rank == 0) {
        CHECK_STATUS(dl_group_barrier(group, soon()), DL_PEER_LOST);
        CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid ");
        CHECK_CONTAINS(dl_last_error()->text, "so there");
    } else {
        CHECK_OK(dl_sleep_until(dl_deadline_after(200 * DL_MILLISECOND)));
        dl_group_abort(group, "so there");
    }
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(a_rank_that_ended_elsewhere_is_not_blamed_before_a_reason_may_have_come)
{
    rank_processes all;

    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    start_processes(&all, 3, give_a_late_reason, NULL);
    join_processes(&all, 0);
}

/* More ranks than have a connection at a time.  The last one is killed.  All others of
 * its host are stopped and report nothing, and so is the leader of this host. */
#define ELSEWHERE 68
#define NEAR 2
#define WITNESS 1

static void
miss_one_of_many(int rank, const rank_processes *all, void *context)
{
    const death *death = context;
    char byte;

    setenv("DISTLITE_HOST_HINT", rank < NEAR ? "a" : "b", 1);
    dl_store *store = open_file_store(all);
    dl_group_options options = {.name = "0",
                                .backend = "cpu",
                                .rank = rank,
                                .size = all->size,
                                .timeout = 60 * DL_SECOND};
    dl_group *group = NULL;

    CHECK_OK(dl_group_new(&options, store, &group));
    close(death->killed[1]);
    say_ready(death);
    CHECK(read(death->killed[0], &byte, 1) == 0);
    int64_t start = dl_now();
    CHECK_STATUS(dl_group_barrier(group, dl_deadline_after(60 * DL_SECOND)),
                 DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 69 (pid ");
    CHECK(dl_now() - start < 10 * DL_SECOND + CHECK_SLACK);
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(one_of_many_ranks_on_a_host_that_is_stopped_is_missed)
{
    death death = {.victim = NEAR + ELSEWHERE - 1};
    rank_processes all;
    char bytes[NEAR + ELSEWHERE];
    int status;

    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    CHECK(pipe(death.ready) == 0 && pipe(death.killed) == 0);
    start_processes(&all, NEAR + ELSEWHERE, miss_one_of_many, &death);
    for (int seen = 0; seen < all.size;) {
        ssize_t got = read(death.ready[0], bytes, sizeof bytes);
        CHECK(got > 0);
        seen += (int)got;
    }
    for (int rank = 0; rank < all.size; rank++) {
        int number = rank == death.victim ? SIGKILL : SIGSTOP;
        CHECK(rank == WITNESS || kill(all.pids[rank], number) == 0);
    }
    CHECK(waitpid(all.pids[death.victim], &status, 0) == all.pids[death.victim]);
    close(death.killed[1]);
    CHECK(waitpid(all.pids[WITNESS], &status, 0) == all.pids[WITNESS] && status == 0);
    for (int rank = 0; rank < death.victim; rank++) {
        if (rank != WITNESS) {
            CHECK(kill(all.pids[rank], SIGKILL) == 0);
            CHECK(waitpid(all.pids[rank], &status, 0) == all.pids[rank]);
        }
    }
    unlink(all.path);
}

/* Rank 1 has no memory for one allocation while it joins, or makes a group out of the
 * world: all others get the error, in the join or in the first operation. */
typedef struct shortage {
    int number; /* of the allocation that fails */
    bool is_child;
    int has_failed[2]; /* a byte if there was one of this number */
} shortage;

static void
check_told(dl_status status, int64_t start)
{
    CHECK(dl_now() - start < GROUP_PATIENCE / 2);
    if (status != DL_OK) {
        /* DL_NETWORK: the rank has published that it has no memory for an address. */
        CHECK(status == DL_PEER_LOST || status == DL_NETWORK);
        CHECK_CONTAINS(dl_last_error()->text, "rank 1 (pid ");
        CHECK_CONTAINS(dl_last_error()->text, "memory");
    }
}

static dl_status
make_group(dl_store *store, dl_group *parent, int rank, int size, dl_group **group)
{
    static const int ranks[] = {0, 1, 2, 3};
    dl_group_options options = {.name = parent == NULL ? "0" : "child",
                                .backend = "cpu",
                                .rank = rank,
                                .size = size,
                                .timeout = GROUP_PATIENCE,
                                .parent = parent,
                                .parent_ranks = ranks};

    *group = NULL;
    return dl_group_new(&options, store, group);
}

static void
join_without_memory(int rank, const rank_processes *all, void *context)
{
    const shortage *shortage = context;
    const char *hosts = getenv("TEST_HOSTS");
    dl_group *world = NULL;
    dl_group *group = NULL;

    setenv("DISTLITE_HOST_HINT", (char[]){hosts[rank], '\0'}, 1);
    dl_store *store = open_file_store(all);
    if (shortage->is_child) {
        world = join_group(store, "0", rank, all->size);
    }
    int64_t start = dl_now();
    if (rank == 1) {
        dl_check_fail_allocation_at(shortage->number);
    }
    dl_status status = make_group(store, world, rank, all->size, &group);
    if (rank == 1 && dl_check_allocation_failed()) {
        CHECK(write(shortage->has_failed[1], "!", 1) == 1);
    }
    if (rank != 1) {
        check_told(status, start);
    }
    if (status == DL_OK && !(rank == 1 && dl_check_allocation_failed())) {
        status = dl_group_barrier(group, soon());
        check_told(status, start);
    }
    /* Ranks that were notified leave when the rank that failed does. */
    if (group != NULL) {
        end_group(group);
    }
    if (world != NULL) {
        CHECK_OK(dl_group_barrier(world, soon()));
        end_group(world);
    }
    dl_store_unref(store);
}

static void
check_shortages(const char *hosts, bool is_child)
{
    shortage shortage = {.is_child = is_child};
    rank_processes all;
    char byte;
    bool goes_on = true;

    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    setenv("TEST_HOSTS", hosts, 1);
    for (int number = 1; goes_on; number++) {
        CHECK(pipe2(shortage.has_failed, O_NONBLOCK | O_CLOEXEC) == 0);
        shortage.number = number;
        start_processes(&all, (int)strlen(hosts), join_without_memory, &shortage);
        join_processes(&all, 0);
        goes_on = read(shortage.has_failed[0], &byte, 1) == 1;
        CHECK(goes_on || number > 5);
        close(shortage.has_failed[0]);
        close(shortage.has_failed[1]);
    }
}

CHECK_CASE(a_rank_without_memory_to_make_a_group_notifies_the_others)
{
    check_shortages("aaa", true);
}

CHECK_CASE(a_rank_without_memory_to_make_a_group_notifies_other_hosts)
{
    check_shortages("aab", true);
}

CHECK_CASE(a_rank_without_memory_to_join_notifies_the_others)
{
    check_shortages("aaa", false);
}

CHECK_CASE(a_rank_without_memory_to_join_notifies_other_hosts)
{
    check_shortages("aab", false);
}
