/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations of few bytes: which ranks run ahead of others, and how differences are
 * detected. */
#include "base/thread.h"
#include "mpi_jobs.h"
#include "pg/group_state.h"

static dl_status
broadcast(const scene *self, int64_t *data, size_t count, int root)
{
    dl_call args = {
        .op = DL_BROADCAST, .tensor = tensor_of(data, count, DL_INT64), .root = root};

    return dl_group_run(self->group, &args, soon());
}

#define MOST_RANKS 11
#define MOST 300

static dl_status
scatter(const scene *self, int64_t *data, size_t count, int root)
{
    static int64_t blocks[MOST_RANKS * MOST];
    dl_tensor rows[MOST_RANKS];
    dl_call args = {.op = DL_SCATTER,
                    .inputs = self->rank == root ? rows : NULL,
                    .tensor = tensor_of(data, count, DL_INT64),
                    .root = root};

    for (int i = 0; i < self->size; i++) {
        rows[i] = tensor_of(blocks + (size_t)i * count, count, DL_INT64);
        for (size_t k = 0; k < count; k++) {
            blocks[(size_t)i * count + k] = data[0] + i;
        }
    }
    return dl_group_run(self->group, &args, soon());
}

/* The root's `all` has each rank's in a row then. */
static dl_status
gather(const scene *self, int64_t *data, size_t count, int root, int64_t *all)
{
    dl_tensor rows[MOST_RANKS];
    dl_call args = {.op = DL_GATHER,
                    .tensor = tensor_of(data, count, DL_INT64),
                    .outputs = self->rank == root ? rows : NULL,
                    .root = root};

    for (int i = 0; i < self->size; i++) {
        rows[i] = tensor_of(all + (size_t)i * count, count, DL_INT64);
    }
    return dl_group_run(self->group, &args, soon());
}

static dl_status
reduce(const scene *self, int64_t *data, size_t count, int root)
{
    dl_call args = {.op = DL_REDUCE,
                    .tensor = tensor_of(data, count, DL_INT64),
                    .root = root,
                    .reduction = DL_SUM};

    return dl_group_run(self->group, &args, soon());
}

/* Blocks of one and of several messages; in 3 * MOST_RANKS turns, at each root. */
static const size_t counts[] = {1, 150, MOST};

static void
go_each_way(const scene *self, int turn)
{
    static int64_t data[MOST], all[MOST_RANKS * MOST];
    size_t count = counts[turn % 3];
    int root = turn / 3 % self->size, last = self->size - 1;
    bool is_root = self->rank == root;

    data[0] = data[count - 1] = turn * 100 + self->rank;
    CHECK_OK(broadcast(self, data, count, root));
    CHECK_EQUAL(data[count - 1], turn * 100 + root);
    data[0] = turn * 1000;
    CHECK_OK(scatter(self, data, count, root));
    CHECK_EQUAL(data[count - 1], turn * 1000 + self->rank);
    CHECK_OK(gather(self, data, count, root, all));
    for (size_t i = 0; is_root && i < (size_t)self->size; i++) {
        CHECK_EQUAL(all[i * count + count - 1], turn * 1000 + (int)i);
    }
    data[0] = self->rank;
    CHECK_OK(reduce(self, data, count, root));
    CHECK_EQUAL(data[0], is_root ? self->size * last / 2 : self->rank);
    if (turn % 10 == 9) {
        CHECK_OK(dl_group_barrier(self->group, soon()));
    }
}

static void
go_often(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);

    (void)context;
    for (int turn = 0; turn < 3 * MOST_RANKS; turn++) {
        go_each_way(&self, turn);
    }
    leave(&self);
}

CHECK_CASE(every_root_and_way)
{
    run_job(1, go_often, NULL);
    run_job(2, go_often, NULL);
    run_job(3, go_often, NULL);
}

CHECK_CASE(every_root_and_way_of_many_ranks)
{
    run_job(MOST_RANKS, go_often, NULL);
}

#define MANY 40

static void
run_ahead(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    bool is_first = rank == 0;
    dl_bytes key = DL_LITERAL("done");
    int64_t value;

    (void)context;
    if (!is_first) {
        CHECK_OK(dl_store_wait(self.store, &key, 1, soon()));
    }
    for (int turn = 0; turn < MANY; turn++) {
        value = is_first ? turn : -1;
        CHECK_OK(broadcast(&self, &value, 1, 0));
        CHECK_EQUAL(value, turn);
        CHECK_OK(reduce(&self, &value, 1, 1));
        CHECK_EQUAL(value, is_first ? turn : 2 * turn);
        if (is_first && turn == 20) {
            CHECK_OK(dl_store_set(self.store, key, key, soon()));
        }
    }
    leave(&self);
}

CHECK_CASE(a_root_does_not_wait)
{
    run_job(2, run_ahead, NULL);
}

static void
check_told(dl_status status, const char *first, const char *second)
{
    CHECK_STATUS(status, DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, first);
    CHECK_CONTAINS(dl_last_error()->text, second);
}

/* Rank 0 has sent, and gets the error when it waits. */
static void
differ_in_size(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    int64_t data[2] = {0};

    (void)context;
    CHECK_OK(broadcast(&self, data, 1, 0));
    dl_status status = broadcast(&self, data, 1 + (size_t)rank, 0);
    if (rank == 0) {
        CHECK_OK(status);
        CHECK_OK(broadcast(&self, data, 1, 0));
        status = dl_group_barrier(self.group, soon());
    }
    check_told(status, "broadcast #2 in group 0: rank 0 called broadcast(1 x int64",
               "rank 1 called broadcast(2 x int64");
    leave(&self);
}

CHECK_CASE(a_difference_is_reported_to_the_rank_that_ran_ahead)
{
    run_job(2, differ_in_size, NULL);
}

/* Neither rank expects the other's message: the next operation finds it, in which MPI may
 * fail on one rank long before the other comes. */
static void
differ_in_root(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    int64_t data[2] = {0};

    (void)context;
    CHECK_OK(rank == 0 ? broadcast(&self, data, 1, 0) : scatter(&self, data, 2, 1));
    CHECK_OK(dl_sleep_until(MS(rank == 0 ? 500 : 0)));
    check_told(dl_group_barrier(self.group, soon()), "barrier #2 in group 0: ranks 0 ",
               "and 1 called different operations before it");
    leave(&self);
}

CHECK_CASE(two_roots_are_reported)
{
    run_job(2, differ_in_root, NULL);
}

/* Each waits for the other, and neither has sent anything. */
static void
wait_in_a_circle(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    int64_t data = 0, rows[MOST_RANKS];

    (void)context;
    CHECK_OK(broadcast(&self, &data, 1, 0));
    check_told(rank == 0 ? gather(&self, &data, 1, 0, rows)
                         : broadcast(&self, &data, 1, 0),
               "gather #2 in group 0: rank 0 called gather(1 x int64, to rank 0)",
               "rank 1 called broadcast(1 x int64, from rank 0)");
    leave(&self);
}

CHECK_CASE(a_deadlock_is_reported)
{
    run_job(2, wait_in_a_circle, NULL);
}

/* On a machine where others want the core, a yield takes their time slices. */
static long yield_span;

int
sched_yield(void)
{
    struct timespec span = {.tv_nsec = yield_span};

    return nanosleep(&span, NULL);
}

CHECK_CASE(a_deadlock_is_reported_where_cores_are_few)
{
    yield_span = 20 * DL_MILLISECOND;
    run_job(2, wait_in_a_circle, NULL);
}

/* The rank in the middle, whose messages do not reach all others. */
static void
one_differs(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    int64_t data[3] = {0};
    dl_status status;

    (void)context;
    status = rank == 2 ? all_reduce(self.group, data, 3) : reduce(&self, data, 2, 3);
    if (status == DL_OK) {
        status = dl_group_barrier(self.group, soon());
    }
    check_told(status, "#1 in group 0: rank ", "rank 2 called all_reduce(3 x int64");
    CHECK_CONTAINS(dl_last_error()->text, " called reduce(2 x int64, SUM, to rank 3)");
    leave(&self);
}

CHECK_CASE(one_rank_that_differs_is_reported_on_all)
{
    run_job(5, one_differs, NULL);
}

/* As if an operation that no message crossed had been another one here. */
static void
forget(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);

    (void)context;
    CHECK_OK(dl_group_barrier(self.group, soon()));
    dl_mpi_self(self.group->host.backend)->digest ^= rank == 1 ? 1u : 0;
    check_told(dl_group_barrier(self.group, soon()),
               " called different operations before it", "barrier #2");
    leave(&self);
}

CHECK_CASE(earlier_calls_are_compared)
{
    run_job(3, forget, NULL);
}

static void
be_late(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    int64_t data = 0, rows[MOST_RANKS];
    dl_deadline soon_over = dl_deadline_after(50 * DL_MILLISECOND);
    dl_call args = {
        .op = DL_BROADCAST, .tensor = tensor_of(&data, 1, DL_INT64), .root = 1};
    dl_bytes key = DL_LITERAL("over");

    (void)context;
    if (rank == 0) {
        CHECK_STATUS(dl_group_run(self.group, &args, soon_over), DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, "nothing was received from rank 1;");
        CHECK_STATUS(gather(&self, &data, 1, 0, rows), DL_TIMEOUT);
        CHECK_OK(dl_store_set(self.store, key, key, soon()));
    }
    CHECK_OK(dl_store_wait(self.store, &key, 1, soon()));
    leave(&self);
}

CHECK_CASE(the_one_waited_for_is_named)
{
    run_job(2, be_late, NULL);
}

/* A notice, as its rank comes to the exit with the group.  `context`: whether another
 * part of the program ends MPI before. */
static void
end_with_a_notice(int rank, const rank_processes *all, void *context)
{
    static dl_group *kept; /* as by a program that ends without leaving it */
    scene self = enter(rank, all);
    dl_mpi_notice notice = {.turn = 1};

    kept = self.group;
    dl_mpi_comm *comm = dl_mpi_self(kept->host.backend)->comm;
    dl_mpi_notice_send(comm, &notice);
    dl_store_unref(self.store);
    if (*(bool *)context) {
        CHECK_EQUAL(comm->mpi->finalize(), 0);
    }
}

CHECK_CASE(no_notice_is_pending_as_mpi_ends)
{
    run_job(2, end_with_a_notice, &(bool){false});
}

CHECK_CASE(no_notice_is_pending_as_another_part_of_the_program_ends_mpi)
{
    run_job(2, end_with_a_notice, &(bool){true});
}

/* Each pair of ranks passes a size of its own. */
static void
differ_in_a_block(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    static int64_t out[2][2], in[2][2];
    dl_tensor inputs[2], outputs[2];
    dl_call args = {.op = DL_ALL_TO_ALL, .inputs = inputs, .outputs = outputs};

    (void)context;
    for (int i = 0; i < 2; i++) {
        inputs[i] = tensor_of(out[i], 1, DL_INT64);
        outputs[i] = tensor_of(in[i], i == rank ? 1 : 2, DL_INT64);
    }
    CHECK_STATUS(dl_group_run(self.group, &args, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "sends a block of 8 bytes to rank ");
    CHECK_CONTAINS(dl_last_error()->text, ", which expects 16 bytes");
    leave(&self);
}

CHECK_CASE(blocks_that_do_not_fit_are_reported)
{
    run_job(2, differ_in_a_block, NULL);
}
