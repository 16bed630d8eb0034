/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks as processes over the double of MPI, each with several threads where that
 * matters: MPI has one world in a process. */
#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "mpi_jobs.h"
#include "pg/group_state.h"
#include "pg/mpi/mpi_world.h"
#include "store/prefix_store.h"

/* Counts of none, of few and of many bytes. */
static const size_t counts[] = {0, 1, 13, 300, 5000, 20000};
#define MOST 20000
#define MOST_RANKS 9

static int64_t own[MOST], many[2][MOST_RANKS * MOST];
static dl_tensor rows[2][MOST_RANKS];

static void
lay_out(const scene *self, size_t count)
{
    for (int i = 0; i < self->size; i++) {
        size_t at = (size_t)i * count;
        rows[0][i] = tensor_of(many[0] + at, count, DL_INT64);
        rows[1][i] = tensor_of(many[1] + at, count, DL_INT64);
        for (size_t k = 0; k < count; k++) {
            many[0][at + k] = self->rank * 1000 + i * 10 + (int64_t)k;
            many[1][at + k] = -1;
        }
    }
    for (size_t k = 0; k < count; k++) {
        own[k] = self->rank * 1000 + (int64_t)k;
    }
}

static void
move_blocks(const scene *self, size_t count)
{
    dl_tensor mine = tensor_of(own, count, DL_INT64);
    dl_call all_gather = {.op = DL_ALL_GATHER, .tensor = mine, .outputs = rows[1]};
    dl_call all_to_all = {.op = DL_ALL_TO_ALL, .inputs = rows[0], .outputs = rows[1]};

    lay_out(self, count);
    CHECK_OK(dl_group_run(self->group, &all_gather, soon()));
    for (int i = 0; i < self->size && count > 0; i++) {
        CHECK_EQUAL(many[1][(size_t)i * count + count - 1], i * 1000 + (int)count - 1);
    }
    lay_out(self, count);
    CHECK_OK(dl_group_run(self->group, &all_to_all, soon()));
    for (int i = 0; i < self->size && count > 0; i++) {
        CHECK_EQUAL(many[1][(size_t)i * count], i * 1000 + self->rank * 10);
    }
}

static void
move_from_and_to_roots(const scene *self, size_t count)
{
    int root = self->size - 1;
    bool is_root = self->rank == root;
    dl_tensor mine = tensor_of(own, count, DL_INT64);
    dl_call gather = {.op = DL_GATHER,
                      .tensor = mine,
                      .outputs = is_root ? rows[1] : NULL,
                      .root = root};
    dl_call scatter = {.op = DL_SCATTER,
                       .inputs = is_root ? rows[0] : NULL,
                       .tensor = mine,
                       .root = root};
    dl_call broadcast = {.op = DL_BROADCAST, .tensor = mine, .root = root};

    lay_out(self, count);
    CHECK_OK(dl_group_run(self->group, &gather, soon()));
    for (int i = 0; is_root && i < self->size && count > 0; i++) {
        CHECK_EQUAL(many[1][(size_t)i * count], i * 1000);
    }
    CHECK_OK(dl_group_run(self->group, &scatter, soon()));
    if (count > 0) {
        CHECK_EQUAL(own[0], root * 1000 + self->rank * 10);
    }
    lay_out(self, count);
    CHECK_OK(dl_group_run(self->group, &broadcast, soon()));
    if (count > 0) {
        CHECK_EQUAL(own[count - 1], root * 1000 + (int)count - 1);
    }
}

static void
add_up(const scene *self, size_t count)
{
    dl_tensor mine = tensor_of(own, count, DL_INT64);
    dl_call reduce = {
        .op = DL_REDUCE, .tensor = mine, .root = self->size - 1, .reduction = DL_MAX};
    dl_call scatter = {.op = DL_REDUCE_SCATTER,
                       .inputs = rows[0],
                       .tensor = mine,
                       .reduction = DL_SUM};
    int64_t sum = self->size * (self->size - 1) / 2 * 1000;

    lay_out(self, count);
    CHECK_OK(all_reduce(self->group, own, count));
    if (count > 0) {
        CHECK_EQUAL(own[0], sum);
    }
    lay_out(self, count);
    CHECK_OK(dl_group_run(self->group, &reduce, soon()));
    if (count > 0) {
        CHECK_EQUAL(own[0], self->rank * 1000);
    }
    lay_out(self, count);
    CHECK_OK(dl_group_run(self->group, &scatter, soon()));
    if (count > 0) {
        CHECK_EQUAL(own[0], sum + self->size * self->rank * 10);
    }
}

static void
do_all(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);

    (void)context;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        CHECK_OK(dl_group_barrier(self.group, soon()));
        move_blocks(&self, counts[i]);
        move_from_and_to_roots(&self, counts[i]);
        add_up(&self, counts[i]);
    }
    leave(&self);
}

CHECK_CASE(every_collective)
{
    run_job(1, do_all, NULL);
    run_job(3, do_all, NULL);
    run_job(MOST_RANKS, do_all, NULL);
}

CHECK_CASE(every_collective_in_pieces)
{
    setenv("DISTLITE_MPI_PIECE", "4096", 1);
    run_job(2, do_all, NULL);
    run_job(4, do_all, NULL);
}

static void
pick_nan(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    static double numbers[4001];
    static float shorter[4001];
    dl_call args = {.op = DL_ALL_REDUCE, .reduction = DL_MAX};

    (void)context;
    for (int where = -1; where < 4001; where += 1333) {
        for (int i = 0; i < 4001; i++) {
            shorter[i] = (float)(numbers[i] = rank - 1.5);
        }
        if (where >= 0 && rank == 1) {
            shorter[where] = (float)(numbers[where] = -NAN);
        }
        numbers[1] = shorter[1] = INFINITY;
        args.tensor = tensor_of(numbers, 4001, DL_FLOAT64);
        CHECK_OK(dl_group_run(self.group, &args, soon()));
        args.tensor = tensor_of(shorter, 4001, DL_FLOAT32);
        CHECK_OK(dl_group_run(self.group, &args, soon()));
        for (int i = 0; i < 4001; i++) {
            double expected = i == 1 ? INFINITY : -0.5;
            CHECK(i == where ? isnan(numbers[i]) : numbers[i] == expected);
            CHECK(i == where ? isnan(shorter[i]) : (double)shorter[i] == expected);
        }
    }
    leave(&self);
}

CHECK_CASE(a_nan_is_passed_on)
{
    run_job(2, pick_nan, NULL);
    /* Where MPI's own operation is used if there is none. */
    setenv("DISTLITE_MPI_LIBRARY", getenv("TEST_MPICH"), 1);
    run_job(2, pick_nan, NULL);
}

/* Each thread of a rank has a group of its own, in which it adds up and sends around. */
typedef struct worker {
    const rank_processes *all;
    dl_store *store;
    int rank, number;
} worker;

static void
send_around(const worker *self, dl_group *group)
{
    int64_t out[2000] = {self->rank}, in[2000] = {0};
    int after = (self->rank + 1) % self->all->size;
    int before = (self->rank + self->all->size - 1) % self->all->size;
    dl_call sent = {.tensor = tensor_of(out, 2000, DL_INT64), .peer = after};
    dl_call got = {.tensor = tensor_of(in, 2000, DL_INT64), .peer = before};
    dl_work *works[2];

    got.peer = self->number == 0 ? DL_ANY_RANK : before;
    CHECK_OK(post_as(group, self->number == 0 ? DL_RECV_ANY : DL_RECV, &got, soon(),
                     &works[0]));
    CHECK_OK(post_as(group, DL_SEND, &sent, soon(), &works[1]));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_work_wait(works[i], soon()));
        dl_work_unref(works[i]);
    }
    CHECK_EQUAL(in[0], before);
}

static void *
work(void *argument)
{
    const worker *self = argument;
    char name[8];

    snprintf(name, sizeof name, "%d", self->number);
    dl_group *group = join_mpi_group(self->store, name, self->rank, self->all);
    for (int turn = 0; turn < 10; turn++) {
        int64_t data[2] = {self->rank, turn};
        dl_call args = {.op = DL_ALL_REDUCE,
                        .tensor = tensor_of(data, 2, DL_INT64),
                        .reduction = DL_SUM};
        dl_work *queued;
        CHECK_OK(dl_group_submit(group, &args, soon(), &queued));
        send_around(self, group);
        CHECK_OK(dl_work_wait(queued, soon()));
        dl_work_unref(queued);
        CHECK_EQUAL(data[1], turn * self->all->size);
    }
    end_group(group);
    return NULL;
}

static void
work_in_threads(int rank, const rank_processes *all, void *context)
{
    pthread_t threads[2];
    worker workers[2];

    (void)context;
    enter_job(rank, all);
    for (int i = 0; i < 2; i++) {
        dl_store *all_keys = open_file_store(all);
        workers[i] = (worker){all, NULL, rank, i};
        CHECK_OK(dl_prefix_store_new(i == 0 ? DL_LITERAL("0/") : DL_LITERAL("1/"),
                                     all_keys, &workers[i].store));
        dl_store_unref(all_keys);
    }
    dl_group *first = join_mpi_group(workers[0].store, "first", rank, all);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    end_group(first);
    for (int i = 0; i < 2; i++) {
        dl_store_unref(workers[i].store);
    }
}

CHECK_CASE(threads_have_groups_of_their_own)
{
    run_job(2, work_in_threads, NULL);
}

/* Leaves once `first` has given up, which then does not finalize MPI, as this rank does
 * not either. */
static void
part_after(scene *self, int first)
{
    dl_bytes key = DL_LITERAL("given up");

    if (self->rank == first) {
        CHECK_OK(dl_store_set(self->store, key, key, soon()));
    }
    CHECK_OK(dl_store_wait(self->store, &key, 1, soon()));
    dl_mpi_world_skip_finalize();
    leave(self);
}

static void
be_late(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    int64_t one = 1;
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(&one, 1, DL_INT64),
                    .reduction = DL_SUM};
    dl_deadline soon_over = dl_deadline_after(50 * DL_MILLISECOND);

    (void)context;
    if (rank == 0) {
        CHECK_STATUS(dl_group_run(self.group, &args, soon_over), DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, "waiting for rank 1 ");
        CHECK_STATUS(dl_group_barrier(self.group, soon()), DL_TIMEOUT);
    }
    part_after(&self, 0);
}

CHECK_CASE(late_ranks_are_named)
{
    run_job(2, be_late, NULL);
}

static void *
abort_later(void *group)
{
    CHECK_OK(dl_sleep_until(dl_deadline_after(30 * DL_MILLISECOND)));
    dl_group_abort(group, "for a test");
    return NULL;
}

static void
be_aborted(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    pthread_t thread;

    (void)context;
    if (rank == 0) {
        int64_t got;
        dl_call args = {.tensor = tensor_of(&got, 1, DL_INT64), .peer = 1};
        dl_work *receive;
        CHECK_OK(post_as(self.group, DL_RECV, &args, soon(), &receive));
        CHECK(pthread_create(&thread, NULL, abort_later, self.group) == 0);
        CHECK_STATUS(dl_group_barrier(self.group, soon()), DL_CANCELLED);
        CHECK_CONTAINS(dl_last_error()->text, "for a test");
        CHECK_STATUS(dl_work_wait(receive, soon()), DL_CANCELLED);
        dl_work_unref(receive);
        pthread_join(thread, NULL);
    }
    part_after(&self, 0);
}

CHECK_CASE(an_abort_ends_all_waits)
{
    run_job(2, be_aborted, NULL);
}

/* The wrapper that compares calls aborts the backend inside with its own failure. */
static void *
abort_with_a_timeout(void *group)
{
    dl_error cause = {.status = DL_TIMEOUT, .text = "a comparison timed out"};
    dl_backend *backend = ((dl_group *)group)->host.backend;

    CHECK_OK(dl_sleep_until(dl_deadline_after(30 * DL_MILLISECOND)));
    backend->ops->abort(backend, &cause);
    return NULL;
}

static void
be_aborted_by_a_timeout(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    pthread_t thread;
    int64_t got;
    dl_call args = {.tensor = tensor_of(&got, 1, DL_INT64), .peer = 1};

    (void)context;
    if (rank == 0) {
        CHECK(pthread_create(&thread, NULL, abort_with_a_timeout, self.group) == 0);
        CHECK_STATUS(exchange_as(self.group, DL_RECV, &args, soon(), NULL), DL_TIMEOUT);
        CHECK_TEXT(dl_last_error()->text, "a comparison timed out");
        pthread_join(thread, NULL);
    } else {
        /* It stays until it is told, or rank 0 would find that it has left. */
        args.peer = 0;
        CHECK(exchange_as(self.group, DL_RECV, &args, soon(), NULL) != DL_OK);
        CHECK_CONTAINS(dl_last_error()->text, "a comparison timed out");
    }
    leave(&self);
}

CHECK_CASE(an_abort_with_a_timeout_is_no_timeout_of_the_wait)
{
    run_job(2, be_aborted_by_a_timeout, NULL);
}

static void
differ(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    int64_t data[3] = {0};

    (void)context;
    CHECK_STATUS(all_reduce(self.group, data, 1 + (size_t)rank), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "rank 0 called all_reduce(1 x int64, SUM)");
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 called all_reduce(2 x int64, SUM)");
    leave(&self);
}

CHECK_CASE(different_calls_are_reported_on_both_ranks)
{
    run_job(2, differ, NULL);
}

static void
fail_in_mpi(int rank, const rank_processes *all, void *context)
{
    setenv("DOUBLE_MPI_FAIL", "MPI_Ibcast", 1);
    scene self = enter(rank, all);
    dl_call args = {
        .op = DL_BROADCAST, .tensor = tensor_of(own, MOST, DL_INT64), .root = 1};

    (void)context;
    CHECK(dl_group_run(self.group, &args, soon()) != DL_OK);
    CHECK_CONTAINS(dl_last_error()->text, "MPI_Ibcast failed: MPI_ERR_OTHER");
    CHECK_CONTAINS(dl_last_error()->text, "broadcast #1 in group 0");
    leave(&self);
}

CHECK_CASE(the_text_of_mpi_s_errors_is_shown)
{
    run_job(2, fail_in_mpi, NULL);
}

/* Ends MPI with no request pending, about which the double would complain. */
static void
finalize(const scene *self)
{
    CHECK_EQUAL(dl_mpi_self(self->group->host.backend)->mpi->finalize(), 0);
}

static void
fail_with_a_block(int rank, const rank_processes *all, void *context)
{
    setenv("DOUBLE_MPI_FAIL", "MPI_Isend", 1);
    setenv("DOUBLE_MPI_FAIL_BYTES", "4096", 1);
    setenv("DOUBLE_MPI_FAIL_LAST", "1", 1);
    scene self = enter(rank, all);
    dl_call args = {.op = DL_ALL_TO_ALL, .inputs = rows[0], .outputs = rows[1]};

    (void)context;
    lay_out(&self, MOST);
    CHECK(dl_group_run(self.group, &args, soon()) != DL_OK);
    CHECK_CONTAINS(dl_last_error()->text, "MPI_Isend failed: MPI_ERR_OTHER");
    CHECK(dl_backend_take_kept_memory());
    leave(&self);
}

CHECK_CASE(arrays_of_a_failed_exchange_that_mpi_still_has_are_kept)
{
    run_job(2, fail_with_a_block, NULL);
}

/* Rank 0 has given MPI its array when rank 1 fails, in a call and in a work. */
static void
fail_for_good(int rank, const rank_processes *all, void *context)
{
    if (rank == 1) {
        setenv("DOUBLE_MPI_FAIL", "MPI_Iallreduce", 1);
        setenv("DOUBLE_MPI_FAIL_LAST", "1", 1);
    }
    scene self = enter(rank, all);
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(own, MOST, DL_INT64),
                    .reduction = DL_SUM};
    dl_status expected = rank == 0 ? DL_PEER_LOST : DL_BACKEND;
    dl_work *work;

    CHECK(!dl_backend_take_kept_memory());
    if (context == NULL) {
        CHECK_STATUS(dl_group_run(self.group, &args, soon()), expected);
        CHECK_EQUAL(dl_backend_take_kept_memory(), rank == 0);
        CHECK_STATUS(dl_group_run(self.group, &args, soon()), expected);
    } else {
        CHECK_OK(dl_group_submit(self.group, &args, soon(), &work));
        CHECK_STATUS(dl_work_wait(work, soon()), expected);
        CHECK_EQUAL(work->keeps_memory, rank == 0);
        dl_work_unref(work);
    }
    CHECK(!dl_backend_take_kept_memory());
    dl_mpi_world_skip_finalize();
    leave(&self);
}

CHECK_CASE(arrays_of_a_failed_collective_that_mpi_still_has_are_kept)
{
    run_job(2, fail_for_good, NULL);
    run_job(2, fail_for_good, "as a work");
}

static pid_t stopping;

static dl_status
interrupt_once_stopped(void)
{
    return is_stopped(stopping) ? dl_fail(DL_INTERRUPTED, "interrupted") : DL_OK;
}

/* Rank 1 is stopped between the headers, which show that all ranks have come, and the
 * data: rank 0 gives up meanwhile, and ends.  Then rank 1 begins the data alone, and
 * does not wait for its deadline.  It gets all data if they move before rank 0 has
 * ended. */
static void
be_stopped(int rank, const rank_processes *all, void *context)
{
    static int64_t data[100000];
    scene self = enter(rank, all);
    int64_t pid = rank == 1 ? getpid() : 0;
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, 100000, DL_INT64),
                    .reduction = DL_SUM};

    (void)context;
    CHECK_OK(all_reduce(self.group, &pid, 1));
    if (rank == 0) {
        stopping = (pid_t)pid;
        dl_interrupt_install(interrupt_once_stopped);
        CHECK_STATUS(dl_group_run(self.group, &args, soon()), DL_INTERRUPTED);
        CHECK(dl_backend_take_kept_memory());
        CHECK(kill((pid_t)pid, SIGCONT) == 0);
        _exit(0);
    }
    change_double("DISTLITE_MPI_LIBRARY", "DOUBLE_MPI_STOP=MPI_Iallreduce");
    int64_t began = dl_now();
    dl_status status = dl_group_run(self.group, &args, soon());
    CHECK(status == DL_PEER_LOST || status == DL_TIMEOUT || status == DL_OK);
    CHECK(dl_now() - began < 10 * DL_SECOND);
    leave(&self);
}

CHECK_CASE(who_is_stopped_before_the_data_does_not_wait_there_alone)
{
    run_job(2, be_stopped, NULL);
}

static void
be_late_for_mpi(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);

    (void)context;
    finalize(&self);
    CHECK_STATUS(all_reduce(self.group, own, 3), DL_CLOSED);
    CHECK_CONTAINS(dl_last_error()->text, "MPI has been finalized in this process");
    leave(&self);
}

CHECK_CASE(nothing_begins_once_mpi_ends)
{
    run_job(2, be_late_for_mpi, NULL);
}

/* Each pair of ranks passes a size of its own. */
static void
differ_in_a_block(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    dl_tensor inputs[2], outputs[2];
    dl_call args = {.op = DL_ALL_TO_ALL, .inputs = inputs, .outputs = outputs};

    (void)context;
    for (int i = 0; i < 2; i++) {
        inputs[i] = tensor_of(many[0] + i, 1, DL_INT64);
        outputs[i] = tensor_of(many[1] + 2 * i, i == rank ? 1 : 2, DL_INT64);
    }
    CHECK(dl_group_run(self.group, &args, soon()) != DL_OK);
    CHECK_CONTAINS(dl_last_error()->text, "sends a block of 8 bytes to rank ");
    CHECK_CONTAINS(dl_last_error()->text, ", which expects 16 bytes");
    leave(&self);
}

CHECK_CASE(blocks_that_do_not_fit_are_reported)
{
    run_job(2, differ_in_a_block, NULL);
}

/* Every rank is on a host of its own.  MPI moves smaller blocks than by default, so that
 * the arrays of these cases may be small. */
#define LEAST ((size_t)64 << 10)

static scene
enter_from_afar(int rank, const rank_processes *all)
{
    char hint[16];

    snprintf(hint, sizeof hint, "host%d", rank);
    setenv("DISTLITE_HOST_HINT", hint, 1);
    setenv("DISTLITE_MPI_SHARED_MEMORY", "1", 1);
    scene self = enter(rank, all);
    dl_mpi_backend *backend = dl_mpi_self(self.group->host.backend);
    CHECK_EQUAL(backend->least, 512 << 10);
    backend->least = LEAST;
    return self;
}

static size_t
count_between(int from, int to)
{
    return 8000 + 150 * (size_t)((from + 2 * to) % 5);
}

static void
mix_sizes(int rank, const rank_processes *all, void *context)
{
    scene self = enter_from_afar(rank, all);
    dl_call all_to_all = {.op = DL_ALL_TO_ALL, .inputs = rows[0], .outputs = rows[1]};

    (void)context;
    lay_out(&self, MOST);
    for (int i = 0; i < self.size; i++) {
        rows[0][i].count = count_between(rank, i);
        rows[1][i].count = count_between(i, rank);
    }
    CHECK_OK(dl_group_run(self.group, &all_to_all, soon()));
    for (size_t i = 0; i < (size_t)self.size; i++) {
        size_t last = rows[1][i].count - 1;
        CHECK_EQUAL(many[1][i * MOST], (int)i * 1000 + rank * 10);
        CHECK_EQUAL(many[1][i * MOST + last], (int)(i * 1000 + last) + rank * 10);
    }
    lay_out(&self, 10000);
    CHECK_OK(all_reduce(self.group, own, 10000));
    CHECK_EQUAL(own[1], 3000 + self.size);
    CHECK_OK(all_reduce(self.group, own, 10));
    leave(&self);
}

CHECK_CASE(blocks_around_the_least_that_mpi_moves)
{
    run_job(3, mix_sizes, NULL);
}

/* The arrays of ranks but one lie in another order, one behind the other nowhere. */
static void
gather_in_other_orders(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);
    dl_call args = {.op = DL_ALL_GATHER,
                    .tensor = tensor_of(own, MOST, DL_INT64),
                    .outputs = rows[1]};

    (void)context;
    lay_out(&self, MOST);
    for (int i = 0; i < self.size && rank > 0; i++) {
        rows[1][i].data = many[1] + (size_t)(self.size - 1 - i) * MOST;
    }
    CHECK_OK(dl_group_run(self.group, &args, soon()));
    for (int i = 0; i < self.size; i++) {
        const int64_t *row = (const int64_t *)rows[1][i].data;
        CHECK_EQUAL(row[0], i * 1000);
        CHECK_EQUAL(row[MOST - 1], i * 1000 + MOST - 1);
    }
    leave(&self);
}

CHECK_CASE(an_all_gather_into_arrays_in_any_order)
{
    run_job(3, gather_in_other_orders, NULL);
}

/* Rank 0 sends what MPI moves to rank 1, which expects as few bytes as announce it. */
static void
differ_in_a_large_block(int rank, const rank_processes *all, void *context)
{
    scene self = enter_from_afar(rank, all);
    dl_call args = {.op = DL_ALL_TO_ALL, .inputs = rows[0], .outputs = rows[1]};

    (void)context;
    lay_out(&self, MOST);
    for (int i = 0; i < 2; i++) {
        rows[0][i].count = rows[1][i].count = 1;
    }
    rows[0][1].count = rank == 0 ? MOST : 1;
    rows[1][0].count = rank == 1 ? 3 : 1;
    int64_t began = dl_now();
    CHECK_STATUS(dl_group_run(self.group, &args, soon()),
                 rank == 1 ? DL_MISMATCH : DL_PEER_LOST);
    CHECK(dl_now() - began < 5 * DL_SECOND);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1, which expects ");
    leave(&self);
}

/* Rank 0, whose array MPI has, exits without MPI_Finalize, for which rank 1, on another
 * host, does not wait for long. */
CHECK_CASE(a_large_block_is_not_taken_for_a_small_one)
{
    int64_t began = dl_now();

    run_job(2, differ_in_a_large_block, NULL);
    CHECK(dl_now() - began < 20 * DL_SECOND);
}

/* One rank's array is just large enough for MPI. */
static void
differ_around_the_least(int rank, const rank_processes *all, void *context)
{
    scene self = enter_from_afar(rank, all);
    size_t count = LEAST / sizeof *own - (size_t)rank;

    (void)context;
    CHECK_STATUS(all_reduce(self.group, own, count), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 0 called all_reduce(8192 x int64, SUM)");
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 1 called all_reduce(8191 x int64, SUM)");
    leave(&self);
}

CHECK_CASE(calls_around_the_least_that_mpi_moves_are_compared)
{
    run_job(2, differ_around_the_least, NULL);
}

static void
be_proved(int rank, const rank_processes *all, void *context)
{
    scene self = enter(rank, all);

    (void)context;
    CHECK(dl_group_is_proved(self.group, -1));
    leave(&self);
}

CHECK_CASE(ranks_are_proved_as_by_the_cpu_backend)
{
    run_job(2, be_proved, NULL);
}

static void
be_refused(int rank, const rank_processes *all, void *context)
{
    dl_group_options options = {.name = "0",
                                .backend = "mpi",
                                .rank = rank,
                                .size = all->size,
                                .timeout = GROUP_PATIENCE};
    dl_group *group = NULL;

    enter_job(rank, all);
    dl_store *store = open_file_store(all);
    CHECK_STATUS(dl_group_new(&options, store, &group), DL_UNSUPPORTED);
    CHECK_CONTAINS(dl_last_error()->text, (const char *)context);
    dl_store_unref(store);
}

CHECK_CASE(a_lower_thread_level_is_refused)
{
    setenv("DOUBLE_MPI_THREADS", "1", 1);
    run_job(1, be_refused, "a thread level below MPI_THREAD_MULTIPLE (1 of 3)");
}

CHECK_CASE(a_launcher_of_another_mpi_is_noticed)
{
    setenv("PMI_SIZE", "4", 1);
    run_job(2, be_refused, "has started 4 ranks (PMI_SIZE=4)");
}
