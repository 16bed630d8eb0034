/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks as threads over the doubles of NCCL and the CUDA runtime. */
#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "device_groups.h"
#include "pg/device/cuda_table.h"
#include "pg/device/device_state.h"
#include "pg/group_state.h"
#include "pg/nccl/nccl_launch.h"
#include "store_calls.h"

static void
add_up(int rank, int size, void *context)
{
    dl_group *group = join_device_group("sum", rank, size, GROUP_PATIENCE);
    int64_t data[3] = {rank, 10, rank * rank};
    int64_t host = rank;

    (void)context;
    const dl_cuda_table *cuda;
    void *stream;
    CHECK_OK(dl_cuda_load(&cuda));
    CHECK(cuda->stream_create(&stream, 0, 0) == DL_CUDA_SUCCESS);
    dl_work *work = begin_sum(group, data, 3);
    CHECK_OK(dl_work_order(work, stream));
    CHECK_OK(dl_work_wait(work, soon()));
    CHECK(dl_work_is_done(work));
    CHECK_EQUAL(data[0], size * (size - 1) / 2);
    CHECK_EQUAL(data[1], 10 * size);
    CHECK_OK(dl_work_order(work, stream));
    cuda->stream_destroy(stream);
    CHECK_OK(all_reduce(group, &host, 1));
    CHECK_EQUAL(host, size * (size - 1) / 2);
    end_group(group);
    /* Works outlive their group. */
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
}

CHECK_CASE(devices_and_the_host_are_served_by_one_group)
{
    run_ranks(3, add_up);
}

static void
exchange(int rank, int size, void *context)
{
    dl_group *group = join_device_group("batch", rank, size, GROUP_PATIENCE);
    int64_t out[2] = {rank + 1, rank + 2};
    int64_t in[2] = {0};
    dl_call send = {.tensor = device_tensor(out, 2), .peer = 1 - rank};
    dl_call receive = {.tensor = device_tensor(in, 2), .peer = 1 - rank};
    dl_work *work = NULL;

    (void)context;
    CHECK_OK(dl_device_batch_begin(group, soon()));
    CHECK_STATUS(dl_device_batch_begin(group, soon()), DL_INVALID);
    CHECK_OK(post_as(group, DL_SEND, &send, soon(), &work));
    CHECK(work == NULL);
    CHECK_OK(post_as(group, DL_RECV, &receive, soon(), &work));
    CHECK_OK(dl_device_batch_end(group, false, soon(), &work));
    CHECK_OK(dl_work_wait(work, soon()));
    CHECK_EQUAL(in[1], 3 - rank);
    dl_work_unref(work);
    CHECK_OK(dl_device_batch_begin(group, soon()));
    CHECK_OK(post_as(group, DL_SEND, &send, soon(), &work));
    CHECK_OK(dl_device_batch_end(group, true, soon(), &work));
    CHECK(work == NULL);
    CHECK_STATUS(dl_device_batch_end(group, false, soon(), &work), DL_INVALID);
    end_group(group);
}

CHECK_CASE(a_batch_goes_out_together_or_not_at_all)
{
    run_ranks(2, exchange);
}

static void *
wait_behind_the_batch(void *group)
{
    int64_t data = 1;

    dl_work_unref(begin_sum(group, &data, 1));
    return NULL;
}

/* Waits until a thread waits for the turn of the batch. */
static void
await_waiter(dl_lane *lane)
{
    bool is_there = false;

    while (!is_there) {
        pthread_mutex_lock(&lane->lock);
        is_there = !dl_list_is_empty(&lane->queue);
        pthread_mutex_unlock(&lane->lock);
        sched_yield();
    }
}

CHECK_CASE(a_child_that_was_forked_within_a_batch_ends_the_group)
{
    pthread_t waiter;
    dl_work *work;
    int status;

    CHECK_OK(dl_hash_store_new(&store));
    dl_group *group = join_device_group("batch", 0, 1, GROUP_PATIENCE);
    CHECK_OK(dl_device_batch_begin(group, soon()));
    CHECK(pthread_create(&waiter, NULL, wait_behind_the_batch, group) == 0);
    await_waiter(&group->device->side.lane);
    pid_t child = fork();
    if (child == 0) {
        end_group(group);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(dl_device_batch_end(group, true, soon(), &work));
    CHECK(pthread_join(waiter, NULL) == 0);
    end_group(group);
    dl_store_unref(store);
}

static void
swap(int rank, int size, void *context)
{
    dl_group *group = join_device_group("swap", rank, size, GROUP_PATIENCE);
    int64_t out[2] = {10 * rank, 10 * rank + 1};
    int64_t in[2] = {-1, -1};
    dl_tensor inputs[] = {device_tensor(&out[0], 1), device_tensor(&out[1], 1)};
    dl_tensor outputs[] = {device_tensor(&in[0], 1), device_tensor(&in[1], 1)};
    dl_call args = {.op = DL_ALL_TO_ALL, .inputs = inputs, .outputs = outputs};
    dl_work *work = NULL;

    (void)context;
    CHECK_OK(dl_group_submit(group, &args, dl_group_deadline(group), &work));
    CHECK_OK(dl_work_wait(work, soon()));
    CHECK_EQUAL(in[0], rank);
    CHECK_EQUAL(in[1], 10 + rank);
    dl_work_unref(work);
    end_group(group);
}

/* The calls behind it must be made, too: of the batch, and of the one operation. */
CHECK_CASE(a_call_in_progress_is_no_failure)
{
    setenv("DOUBLE_NCCL_IN_PROGRESS", "1", 1);
    run_ranks(2, exchange);
    run_ranks(2, swap);
}

/* Rank 1 stays away from the second operation. */
static void
time_out(int rank, int size, void *context)
{
    dl_group *group = join_device_group("late", rank, size, GROUP_PATIENCE);
    int64_t data = 1;

    (void)context;
    dl_work *work = begin_sum(group, &data, 1);
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    dl_group_set_timeout(group, 300 * DL_MILLISECOND);
    if (rank == 0) {
        work = begin_sum(group, &data, 1);
        CHECK_STATUS(dl_work_wait(work, dl_deadline_after(0)), DL_TIMEOUT);
        CHECK(!dl_work_is_done(work));
        CHECK_STATUS(dl_work_wait(work, soon()), DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, "all_reduce #2 on cuda:0 timed out");
        CHECK_CONTAINS(dl_last_error()->text, "group late, rank 0 of 2");
        CHECK_STATUS(dl_work_order(work, NULL), DL_TIMEOUT);
        dl_work_unref(work);
    }
    end_group(group);
}

CHECK_CASE(a_late_rank_is_a_timeout_that_says_what)
{
    run_ranks(2, time_out);
}

/* The variable limits the operation; NCCL blocks in its launch, which connects. */
static void
time_out_by_variable(int rank, int size, void *context)
{
    dl_group *group = join_device_group("limit", rank, size, 60 * DL_SECOND);
    int64_t data = 1;
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(&data, 1), .reduction = DL_SUM};
    dl_work *work = NULL;

    (void)context;
    CHECK_OK(dl_device_connect(group, 0, soon()));
    if (rank == 0) {
        CHECK_STATUS(dl_group_submit(group, &args, dl_group_deadline(group), &work),
                     DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, "timed out after 200ms");
        CHECK_CONTAINS(dl_last_error()->text, "NCCL is still connecting the ranks");
    }
    CHECK_OK(dl_store_barrier(store, dl_bytes_of("over"), size, soon()));
    end_group(group);
}

CHECK_CASE(nccl_timeout_takes_the_place_of_the_groups)
{
    setenv("NCCL_TIMEOUT", "0.2", 1);
    run_ranks(2, time_out_by_variable);
}

/* The operation of rank 0 outlasts the group's timeout. */
static void
outlast_the_timeout(int rank, int size, void *context)
{
    dl_group *group = join_device_group("patient", rank, size, GROUP_PATIENCE);
    int64_t data = 1;

    (void)context;
    warm_up(group);
    dl_group_set_timeout(group, 100 * DL_MILLISECOND);
    dl_work *work = NULL;
    if (rank == 0) {
        work = begin_sum(group, &data, 1);
        CHECK_STATUS(dl_work_wait(work, dl_deadline_after(300 * DL_MILLISECOND)),
                     DL_TIMEOUT);
        CHECK(!dl_work_is_done(work));
    }
    dl_group_set_timeout(group, GROUP_PATIENCE);
    CHECK_OK(dl_group_barrier(group, soon()));
    if (rank == 1) {
        work = begin_sum(group, &data, 1);
    }
    CHECK_OK(dl_work_wait(work, soon()));
    CHECK_EQUAL(data, 2);
    dl_work_unref(work);
    end_group(group);
}

CHECK_CASE(nccl_timeout_may_be_longer_than_the_clock_counts)
{
    setenv("NCCL_TIMEOUT", "inf", 1);
    run_ranks(2, outlast_the_timeout);
    setenv("NCCL_TIMEOUT", "1e10", 1);
    run_ranks(2, outlast_the_timeout);
}

static void *
abort_soon(void *group)
{
    dl_sleep_until(dl_deadline_after(30 * DL_MILLISECOND));
    dl_group_abort(group, "the test says so");
    return NULL;
}

static void
be_aborted(int rank, int size, void *context)
{
    dl_group *group = join_device_group("abort", rank, size, GROUP_PATIENCE);
    dl_call args = {.op = DL_ALL_REDUCE, .reduction = DL_SUM};
    int64_t data = 1;
    pthread_t thread;
    dl_work *works[2];

    (void)context;
    args.tensor = device_tensor(&data, 1);
    works[0] = begin_sum(group, &data, 1);
    CHECK_OK(dl_work_wait(works[0], soon()));
    dl_work_unref(works[0]);
    if (rank == 0) {
        works[0] = begin_sum(group, &data, 1);
        works[1] = begin_sum(group, &data, 1);
        CHECK(pthread_create(&thread, NULL, abort_soon, group) == 0);
        for (int i = 0; i < 2; i++) {
            CHECK_STATUS(dl_work_wait(works[i], soon()), DL_CANCELLED);
            CHECK_CONTAINS(dl_last_error()->text, "the test says so");
            dl_work_unref(works[i]);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_STATUS(dl_group_run(group, &args, soon()), DL_CANCELLED);
    }
    end_group(group);
}

CHECK_CASE(an_abort_frees_all_waiters)
{
    run_ranks(2, be_aborted);
}

/* An operation that is under way when its group is closed has time to end. */
static void
leave_early(int rank, int size, void *context)
{
    dl_group *group = join_device_group("close", rank, size, GROUP_PATIENCE);
    int64_t data = rank;

    (void)context;
    dl_work *work = begin_sum(group, &data, 1);
    end_group(group);
    CHECK_OK(dl_work_wait(work, soon()));
    CHECK_EQUAL(data, size * (size - 1) / 2);
    dl_work_unref(work);
}

CHECK_CASE(running_operations_end_before_the_group)
{
    run_ranks(3, leave_early);
}

static void
split_in_two(int rank, int size, void *context)
{
    dl_group *parent = join_device_group("parent", rank, size, GROUP_PATIENCE);
    bool is_outside = rank == size - 1;
    dl_device_split_args parting = {
        .way = DL_DEVICE_SPLIT, .color = is_outside ? -1 : 0, .key = -rank};
    int64_t data = 1;

    (void)context;
    CHECK_OK(dl_device_connect(parent, 0, soon()));
    /* By key: the last of the part comes first. */
    dl_group *part = is_outside ? NULL
                                : join_device_group("part", size - 2 - rank, size - 1,
                                                    GROUP_PATIENCE);
    CHECK_OK(dl_device_split(parent, &parting, soon(), part));
    if (part != NULL) {
        dl_work *work = begin_sum(part, &data, 1);
        CHECK_OK(dl_work_wait(work, soon()));
        CHECK_EQUAL(data, size - 1);
        dl_work_unref(work);
        end_group(part);
    }
    end_group(parent);
}

CHECK_CASE(a_split_makes_communicators_without_a_meeting)
{
    run_ranks(3, split_in_two);
}

static void
check_sum(dl_group *group, int64_t data, int64_t expected)
{
    dl_work *work = begin_sum(group, &data, 1);

    CHECK_OK(dl_work_wait(work, soon()));
    CHECK_EQUAL(data, expected);
    dl_work_unref(work);
}

/* Two ranks, then three, then the last two of these. */
static void
grow_and_shrink(int rank, int size, void *context)
{
    dl_device_split_args growing = {.way = DL_DEVICE_GROW};
    dl_device_split_args shrinking = {
        .way = DL_DEVICE_SHRINK, .excluded = (int[]){0}, .excluded_count = 1};
    bool is_new = rank == size - 1;
    int ways;

    (void)context;
    dl_group *first =
        is_new ? NULL : join_device_group("first", rank, size - 1, GROUP_PATIENCE);
    if (!is_new) {
        check_sum(first, rank, 1);
        CHECK_OK(dl_device_ways(first, soon(), &ways));
        CHECK_EQUAL(ways,
                    DL_DEVICE_CAN_SHRINK | DL_DEVICE_CAN_GROW | DL_DEVICE_IS_READY);
    }
    dl_group *whole = join_device_group("whole", rank, size, GROUP_PATIENCE);
    CHECK_OK(dl_device_ways(whole, soon(), &ways));
    CHECK_EQUAL(ways, DL_DEVICE_CAN_SHRINK | DL_DEVICE_CAN_GROW);
    CHECK_OK(dl_device_split(first, &growing, soon(), whole));
    check_sum(whole, rank, 3);
    if (rank > 0) {
        dl_group *rest = join_device_group("rest", rank - 1, size - 1, GROUP_PATIENCE);
        CHECK_OK(dl_device_split(whole, &shrinking, soon(), rest));
        check_sum(rest, rank, 3);
        end_group(rest);
    }
    end_group(whole);
    if (!is_new) {
        end_group(first);
    }
}

CHECK_CASE(a_communicator_grows_and_shrinks)
{
    run_ranks(3, grow_and_shrink);
}

CHECK_CASE(arrays_that_no_backend_takes_are_refused)
{
    int64_t data[4] = {0};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 2), .reduction = DL_SUM};

    CHECK_OK(dl_hash_store_new(&store));
    dl_group *group = join_group(store, "host", 0, 1);
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_UNSUPPORTED);
    CHECK_CONTAINS(dl_last_error()->text, "backend=\"nccl\"");
    dl_device_options unset = {0};
    CHECK_STATUS(dl_device_serve(group, "bccl", &unset), DL_INVALID);
    CHECK_OK(dl_device_serve(group, "nccl", &unset));
    CHECK_TEXT(dl_device_name(group), "nccl");
    args.tensor.is_contiguous = false;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "is not contiguous");
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(reductions_are_put_into_the_terms_of_nccl)
{
    dl_nccl_table old = {.version = 21800};
    dl_nccl_table new = {.version = 22703};

    CHECK_OK(dl_nccl_reduction_check(&old, DL_SUM, DL_FLOAT32));
    CHECK_OK(dl_nccl_reduction_check(&old, DL_SUM, DL_COMPLEX64));
    CHECK_EQUAL(dl_nccl_reduction_of(DL_SUM, DL_COMPLEX64).per_element, 2);
    CHECK_EQUAL(dl_nccl_reduction_of(DL_SUM, DL_BOOL).op, 2);
    CHECK_STATUS(dl_nccl_reduction_check(&new, DL_PRODUCT, DL_COMPLEX64),
                 DL_UNSUPPORTED);
    CHECK_STATUS(dl_nccl_reduction_check(&new, DL_SUM, DL_INT16), DL_UNSUPPORTED);
    CHECK_STATUS(dl_nccl_reduction_check(&new, DL_BXOR, DL_INT32), DL_UNSUPPORTED);
    CHECK_STATUS(dl_nccl_reduction_check(&new, DL_PREMUL_SUM, DL_FLOAT8_E5M2),
                 DL_UNSUPPORTED);
    CHECK_STATUS(dl_nccl_reduction_check(&old, DL_SUM, DL_FLOAT8_E5M2), DL_UNSUPPORTED);
    CHECK_CONTAINS(dl_last_error()->text, "needs NCCL 2.24 or newer; this is 2.18.0");
    CHECK_OK(dl_nccl_reduction_check(&new, DL_SUM, DL_FLOAT8_E5M2));
}

/* NCCL reports this itself, but only inside a group of calls, which breaks the
 * communicator. */
CHECK_CASE(eight_bit_floats_are_refused_before_anything_is_sent)
{
    int64_t data[2] = {0};
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, 8, DL_FLOAT8_E5M2),
                    .reduction = DL_SUM};
    dl_call move;
    dl_work *work = NULL;

    args.tensor.device = DL_CUDA;
    move = (dl_call){.op = DL_BROADCAST, .tensor = args.tensor};
    change_double("DISTLITE_CUDART_LIBRARY", "DOUBLE_CUDA_CAPABILITY=89");
    CHECK_OK(dl_hash_store_new(&store));
    dl_group *group = join_device_group("fp8", 0, 1, GROUP_PATIENCE);
    CHECK_STATUS(dl_group_submit(group, &args, soon(), &work), DL_UNSUPPORTED);
    CHECK_CONTAINS(dl_last_error()->text, "capability 9.0 or newer; cuda:0 has 8.9");
    CHECK_OK(dl_group_submit(group, &move, soon(), &work));
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    change_double("DISTLITE_CUDART_LIBRARY", "DOUBLE_CUDA_CAPABILITY=90");
    CHECK_OK(dl_group_submit(group, &args, soon(), &work));
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    end_group(group);
    dl_store_unref(store);
}

/* The watches, by the name of their thread. */
static int
count_watches(void)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    char path[300], name[32];
    int count = 0;

    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL && fgets(name, sizeof name, file) != NULL) {
            count += strcmp(name, "distlite-nccl\n") == 0;
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(folder);
    return count;
}

/* A thread has its name a moment after its start, and may be on its way out. */
static void
await_watches(int count)
{
    dl_deadline deadline = soon();

    while (count_watches() != count && !dl_deadline_passed(deadline)) {
        dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    CHECK_EQUAL(count_watches(), count);
}

CHECK_CASE(one_thread_watches_all_groups)
{
    dl_group *groups[4];
    char name[16];

    CHECK_OK(dl_hash_store_new(&store));
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "group %d", i);
        groups[i] = join_device_group(name, 0, 1, GROUP_PATIENCE);
        warm_up(groups[i]);
    }
    await_watches(1);
    for (int i = 0; i < 4; i++) {
        end_group(groups[i]);
    }
    await_watches(0);
    dl_store_unref(store);
}

/* Until the abort the device may write to the arrays of waiting calls. */
static void
fail_after_abort(int rank, int size, void *context)
{
    dl_group *group = join_device_group("order", rank, size, GROUP_PATIENCE);
    int64_t data = 1;

    (void)context;
    warm_up(group);
    CHECK_OK(dl_store_barrier(store, dl_bytes_of("warm"), size, soon()));
    if (rank == 0) {
        void *library = dlopen(getenv("DISTLITE_NCCL_LIBRARY"), RTLD_NOW);
        atomic_int *comms = dlsym(library, "double_comms");
        dl_work *work = begin_sum(group, &data, 1);
        CHECK_EQUAL(atomic_load(comms), 2);
        dl_group_abort(group, "enough");
        CHECK_STATUS(dl_work_wait(work, soon()), DL_CANCELLED);
        CHECK_EQUAL(atomic_load(comms), 1);
        dl_work_unref(work);
    }
    CHECK_OK(dl_store_barrier(store, dl_bytes_of("over"), size, soon()));
    end_group(group);
}

CHECK_CASE(works_fail_once_the_communicator_is_aborted)
{
    run_ranks(2, fail_after_abort);
}

/* A library's queries, which can be held, and how often groups have launched. */
typedef struct querying {
    atomic_bool *are_held;
    atomic_int *count;
    atomic_int launched;
    dl_group *groups[2];
    pthread_t threads[2];
    atomic_int started;
} querying;

static void
begin_holding(querying *self, const char *library_name)
{
    void *library = dlopen(getenv(library_name), RTLD_NOW);
    char name[16];

    self->are_held = dlsym(library, "double_queries_are_held");
    self->count = dlsym(library, "double_queries");
    CHECK_OK(dl_hash_store_new(&store));
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "group %d", i);
        self->groups[i] = join_device_group(name, 0, 1, GROUP_PATIENCE);
        warm_up(self->groups[i]);
    }
    atomic_store(self->are_held, true);
}

static void *
launch_one(void *context)
{
    querying *self = context;
    int64_t data = 1;

    dl_work *work =
        begin_sum(self->groups[atomic_fetch_add(&self->started, 1)], &data, 1);
    atomic_fetch_add(&self->launched, 1);
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    return NULL;
}

static void
start_launch(querying *self, int i)
{
    CHECK(pthread_create(&self->threads[i], NULL, launch_one, self) == 0);
}

static void
await_count(atomic_int *count, int wanted)
{
    dl_deadline deadline = dl_deadline_after(5 * DL_SECOND);

    while (atomic_load(count) < wanted && !dl_deadline_passed(deadline)) {
        sched_yield();
    }
}

static void
end_holding(querying *self, int wanted)
{
    await_count(&self->launched, wanted);
    int launched = atomic_load(&self->launched);
    atomic_store(self->are_held, false);
    /* Either thread may use either group. */
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(self->threads[i], NULL) == 0);
    }
    for (int i = 0; i < 2; i++) {
        end_group(self->groups[i]);
    }
    CHECK(launched >= wanted);
    dl_store_unref(store);
}

CHECK_CASE(a_query_of_an_event_holds_up_no_launch)
{
    querying self = {0};

    begin_holding(&self, "DISTLITE_CUDART_LIBRARY");
    int before = atomic_load(self.count);
    start_launch(&self, 0);
    await_count(self.count, before + 1);
    start_launch(&self, 1);
    end_holding(&self, 2);
}

/* It may hold up those of its own communicator, which one thread at a time uses. */
CHECK_CASE(a_query_of_a_communicator_holds_up_no_other)
{
    querying self = {0};

    begin_holding(&self, "DISTLITE_NCCL_LIBRARY");
    await_count(self.count, atomic_load(self.count) + 1);
    start_launch(&self, 0);
    start_launch(&self, 1);
    end_holding(&self, 1);
}

static dl_work *
begin_message(dl_group *group, dl_op_type op, int peer, int64_t *data)
{
    dl_call message = {.tensor = device_tensor(data, 1), .peer = peer};
    dl_work *work = NULL;

    CHECK_OK(post_as(group, op, &message, dl_group_deadline(group), &work));
    return work;
}

/* Rank 0 has a communicator with each other rank, and an operation on each of them that
 * only an abort ends. */
static void
abort_messages(int rank, int size, void *context)
{
    dl_group *group = join_device_group("messages", rank, size, GROUP_PATIENCE);
    int64_t data[3] = {0};
    dl_work *works[3] = {NULL};

    (void)context;
    for (int peer = 1; peer < size; peer++) {
        if (rank == 0 || rank == peer) {
            dl_work *work = begin_message(group, rank == 0 ? DL_RECV : DL_SEND,
                                          rank == 0 ? peer : 0, &data[peer]);
            CHECK_OK(dl_work_wait(work, soon()));
            dl_work_unref(work);
        }
    }
    CHECK_OK(dl_store_barrier(store, dl_bytes_of("warm"), size, soon()));
    for (int peer = 1; rank == 0 && peer < size; peer++) {
        works[peer] = begin_message(group, DL_RECV, peer, &data[peer]);
    }
    if (rank == 0) {
        void *library = dlopen(getenv("DISTLITE_NCCL_LIBRARY"), RTLD_NOW);
        atomic_int *comms = dlsym(library, "double_comms");
        CHECK_EQUAL(atomic_load(comms), 4);
        dl_group_abort(group, "enough");
        CHECK_STATUS(dl_work_wait(works[1], soon()), DL_CANCELLED);
        CHECK_STATUS(dl_work_wait(works[2], soon()), DL_CANCELLED);
        CHECK_EQUAL(atomic_load(comms), 2);
        dl_work_unref(works[1]);
        dl_work_unref(works[2]);
    }
    CHECK_OK(dl_store_barrier(store, dl_bytes_of("over"), size, soon()));
    end_group(group);
}

CHECK_CASE(communicators_whose_aborts_wait_for_each_other_are_all_aborted)
{
    setenv("DOUBLE_NCCL_FREE_WAITS", "1", 1);
    run_ranks(3, abort_messages);
}

CHECK_SLOW_CASE(a_teardown_that_hangs_is_left_behind)
{
    int64_t data = 1;

    CHECK_OK(dl_hash_store_new(&store));
    dl_group *group = join_device_group("hang", 0, 1, GROUP_PATIENCE);
    dl_work *work = begin_sum(group, &data, 1);
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    setenv("DOUBLE_NCCL_HANG", "1", 1);
    int64_t begun = dl_now();
    end_group(group);
    CHECK(dl_now() - begun < 15 * DL_SECOND);
    dl_store_unref(store);
}
