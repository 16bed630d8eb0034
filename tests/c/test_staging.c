/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays on a device by the CPU's backend, with the double of the CUDA runtime, whose
 * device memory is the host's. */
#include "device_groups.h"

#include <dlfcn.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "pg/device/pinned.h"
#include "pg/group_state.h"

static void *
of_double(const char *name)
{
    void *library = dlopen(getenv("DISTLITE_CUDART_LIBRARY"), RTLD_NOW);
    void *symbol = library == NULL ? NULL : dlsym(library, name);

    CHECK(symbol != NULL);
    return symbol;
}

static size_t
pinned_size(void)
{
    size_t (*ask)(void);

    *(void **)&ask = of_double("double_pinned_size");
    return ask();
}

static const dl_cuda_table *
load_cuda(void)
{
    const dl_cuda_table *cuda;

    CHECK_OK(dl_cuda_load(&cuda));
    return cuda;
}

static dl_group *
join_staging(const char *name, int rank, int size)
{
    return join_device_group(name, rank, size, GROUP_PATIENCE);
}

static void
run_staging(int size, dl_rank_fn run)
{
    device_engine = "gloo";
    run_ranks(size, run);
}

/* One rank's array is on a device, the other's is the CPU's: it is one operation. */
static void
add_up(int rank, int size, void *context)
{
    dl_group *group = join_staging("staged", rank, size);
    int64_t data[3] = {rank, 10, rank * rank};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 3), .reduction = DL_SUM};
    dl_work *works[4];

    (void)context;
    CHECK(dl_device_name(group) == NULL);
    CHECK(dl_device_is_served(group));
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_EQUAL(data[0], size * (size - 1) / 2);
    CHECK_EQUAL(data[1], 10 * size);
    if (rank == 0) {
        args.tensor.device = DL_CPU;
    }
    data[0] = 1;
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_EQUAL(data[0], size);
    for (int i = 0; i < 4; i++) {
        works[i] = begin_sum(group, data, 1);
        CHECK(!dl_work_is_on_device(works[i]));
    }
    for (int i = 3; i >= 0; i--) {
        CHECK_OK(dl_work_wait(works[i], soon()));
        dl_work_unref(works[i]);
    }
    CHECK_EQUAL(data[0], size * size * size * size * size);
    CHECK_EQUAL(dl_group_sequence(group), 6);
    end_group(group);
}

CHECK_CASE(ranks_add_up_by_way_of_the_host)
{
    run_staging(3, add_up);
    CHECK_EQUAL(pinned_size(), 0);
}

/* Each rank writes only to the output arrays of a call. */
static void
move(int rank, int size, void *context)
{
    dl_group *group = join_staging("moved", rank, size);
    int64_t own[2] = {rank, rank + 10}, block[2] = {-1, -1}, all[6], apart[3][4];
    dl_tensor whole[3], blocks[3];
    dl_tensor source = device_tensor(own, 2);

    (void)context;
    memset(all, -1, sizeof all);
    memset(apart, -1, sizeof apart);
    for (int i = 0; i < size; i++) {
        whole[i] = device_tensor(&all[2 * i], 2);
        blocks[i] = device_tensor(apart[i], 2);
    }
    source.is_writable = false;
    dl_call gather = {.op = DL_ALL_GATHER, .tensor = source, .outputs = whole};
    CHECK_OK(dl_group_run(group, &gather, soon()));
    gather.outputs = blocks;
    CHECK_OK(dl_group_run(group, &gather, soon()));
    for (int i = 0; i < size; i++) {
        CHECK_EQUAL(all[2 * i + 1], i + 10);
        CHECK_EQUAL(apart[i][0], i);
        CHECK_EQUAL(apart[i][2], -1);
        apart[i][0] = 100 * rank + i;
        apart[i][1] = 0;
    }
    /* The input blocks are separate, and the output blocks contiguous. */
    dl_call swap = {.op = DL_ALL_TO_ALL, .inputs = blocks, .outputs = whole};
    CHECK_OK(dl_group_run(group, &swap, soon()));
    CHECK_EQUAL(all[2 * 1], 100 + rank);
    dl_call scatter = {.op = DL_SCATTER, .tensor = device_tensor(block, 2), .root = 1};
    scatter.inputs = rank == 1 ? blocks : NULL;
    CHECK_OK(dl_group_run(group, &scatter, soon()));
    CHECK_EQUAL(block[0], 100 + rank);
    dl_call reduce = {.op = DL_REDUCE,
                      .tensor = device_tensor(block, 2),
                      .reduction = DL_MAX,
                      .root = 2};
    reduce.tensor.is_writable = rank == 2;
    CHECK_OK(dl_group_run(group, &reduce, soon()));
    CHECK_EQUAL(block[0], rank == 2 ? 102 : 100 + rank);
    dl_call share = {.op = DL_BROADCAST, .tensor = source, .root = 0};
    share.tensor.is_writable = rank != 0;
    CHECK_OK(dl_group_run(group, &share, soon()));
    CHECK_EQUAL(own[1], 10);
    own[0] = rank + 1;
    dl_call scan = {
        .op = DL_EXSCAN, .tensor = device_tensor(own, 1), .reduction = DL_SUM};
    scan.tensor.is_writable = rank > 0;
    CHECK_OK(dl_group_run(group, &scan, soon()));
    CHECK_EQUAL(own[0], rank == 0 ? 1 : rank * (rank + 1) / 2);
    end_group(group);
}

CHECK_CASE(only_what_is_written_is_copied_back)
{
    run_staging(3, move);
}

CHECK_CASE(memory_for_copies_is_used_again)
{
    const dl_cuda_table *cuda = load_cuda();
    dl_pinned *pinned = NULL;
    int previous;

    CHECK_OK(dl_cuda_enter(cuda, 0, &previous));
    CHECK_OK(dl_pinned_reserve(cuda, 0, 100, &pinned));
    void *memory = pinned->memory;
    CHECK_OK(dl_pinned_reserve(cuda, 0, 5000, &pinned));
    CHECK(pinned->memory == memory);
    CHECK_OK(dl_pinned_reserve(cuda, 1, 5000, &pinned));
    CHECK_EQUAL(pinned->device, 1);
    CHECK_OK(dl_pinned_reserve(cuda, 1, 1 << 20, &pinned));
    CHECK_EQUAL((size_t)pinned_size(), pinned->size);
    dl_pinned_free(pinned);
    CHECK_EQUAL(pinned_size(), 0);
}

CHECK_CASE(much_memory_for_copies_is_not_doubled)
{
    const dl_cuda_table *cuda = load_cuda();
    size_t sizes[] = {DL_PINNED_LIMIT / 2 + 1, DL_PINNED_LIMIT + 1};
    dl_pinned *pinned = NULL;
    int previous;

    CHECK_OK(dl_cuda_enter(cuda, 0, &previous));
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(dl_pinned_reserve(cuda, 0, sizes[i], &pinned));
        CHECK(pinned->size >= sizes[i] && pinned->size < sizes[i] + (1 << 20));
        dl_pinned_free(pinned);
        pinned = NULL;
    }
    CHECK_EQUAL(pinned_size(), 0);
}

/* A large operation does not keep its memory, and a small one does, until the end of the
 * group. */
static void
stage_much(int rank, int size, void *context)
{
    dl_group *group = join_staging("much", rank, size);
    size_t count = DL_PINNED_LIMIT / sizeof(int64_t) + 1;
    int64_t *data = calloc(count, sizeof *data);
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, count), .reduction = DL_SUM};

    (void)context;
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_EQUAL(pinned_size(), 0);
    args.tensor.count = 3;
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK(pinned_size() > 0);
    dl_group_close(group);
    CHECK_EQUAL(pinned_size(), 0);
    dl_group_unref(group);
    free(data);
}

CHECK_CASE(memory_of_a_large_operation_is_not_kept)
{
    run_staging(1, stage_much);
}

CHECK_CASE(arrays_that_cannot_be_staged_are_refused)
{
    int64_t data[4] = {0}, other[2] = {0};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 2), .reduction = DL_SUM};
    dl_call message = {
        .op = DL_SEND, .tensor = device_tensor(data, 2), .peer = 1, .tag = 0};
    dl_tensor outputs[1] = {tensor_of(other, 2, DL_INT64)};
    dl_call mixed = {
        .op = DL_ALL_GATHER, .tensor = device_tensor(data, 2), .outputs = outputs};
    dl_device_options unset = {0};
    dl_work *work;

    device_engine = "gloo";
    CHECK_OK(dl_hash_store_new(&store));
    dl_group *plain = join_group(store, "plain", 0, 1);
    CHECK_STATUS(dl_group_run(plain, &args, soon()), DL_UNSUPPORTED);
    CHECK_STATUS(dl_device_serve(plain, "mpi", &unset), DL_INVALID);
    end_group(plain);
    dl_group *group = join_staging("staged", 0, 1);
    args.tensor.is_contiguous = false;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "is not contiguous; the cpu backend needs");
    CHECK_STATUS(dl_group_run(group, &mixed, soon()), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "the arrays are not all on one device");
    mixed.tensor = tensor_of(data, 2, DL_INT64);
    outputs[0].device = DL_CUDA;
    CHECK_STATUS(dl_group_run(group, &mixed, soon()), DL_INVALID);
    CHECK_STATUS(dl_device_batch_begin(group, soon()), DL_UNSUPPORTED);
    end_group(group);
    group = join_staging("two", 0, 1);
    message.peer = 0;
    message.op = DL_RECV_ANY;
    CHECK_STATUS(dl_group_post(group, &message, soon(), &work), DL_INVALID);
    end_group(group);
    dl_store_unref(store);
}

/* The copies need more page-locked memory than there is: the other rank gets the
 * error. */
static void
run_out(int rank, int size, void *context)
{
    dl_group *group = join_staging("staged", rank, size);
    static int64_t data[2][3000];
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data[rank], 3000, DL_INT64),
                    .reduction = DL_SUM};

    (void)context;
    args.tensor.device = rank == 0 ? DL_CUDA : DL_CPU;
    CHECK(dl_group_run(group, &args, soon()) != DL_OK);
    CHECK_CONTAINS(dl_last_error()->text,
                   "all_reduce in group staged, rank 0 of 2 on ");
    CHECK_CONTAINS(dl_last_error()->text,
                   ": copying arrays to the CPU's memory: cudaHostAlloc");
    CHECK(dl_group_run(group, &args, soon()) != DL_OK);
    CHECK_CONTAINS(dl_last_error()->text, "is broken");
    end_group(group);
}

CHECK_CASE(a_rank_that_cannot_copy_notifies_the_others)
{
    setenv("DOUBLE_CUDA_PINNED_LIMIT", "1000", 1);
    run_staging(2, run_out);
}

CHECK_CASE(a_failed_staging_leaves_nothing_behind)
{
    int64_t data[8] = {1, 2};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 2), .reduction = DL_SUM};
    const dl_cuda_table *cuda = load_cuda();
    int (*events_alive)(void);
    bool has_failed;
    long number = 0;

    *(void **)&events_alive = of_double("double_events_alive");
    device_engine = "gloo";
    CHECK_OK(dl_hash_store_new(&store));
    do {
        dl_work *work = NULL;
        dl_group *group = join_staging("small", 0, 1);
        dl_check_fail_allocation_at(++number);
        dl_status status = dl_group_submit(group, &args, soon(), &work);
        if (status == DL_OK) {
            status = dl_work_wait(work, soon());
        }
        has_failed = dl_check_allocation_failed();
        CHECK(status == DL_OK || has_failed);
        dl_work_unref(work);
        end_group(group);
        /* The stream still holds a mark that it has not reached. */
        CHECK_EQUAL(cuda->stream_synchronize(NULL), 0);
        CHECK_EQUAL(events_alive(), 0);
        CHECK_EQUAL(pinned_size(), 0);
        CHECK_EQUAL(data[1], 2);
    } while (has_failed);
    CHECK(number > 4);
    dl_store_unref(store);
}

/* Rank 0's stream does not reach the operation: the error names rank 0, and rank 1 gets
 * it. */
static void
come_late(int rank, int size, void *context)
{
    const dl_cuda_table *cuda = load_cuda();
    dl_group *group = join_staging("late", rank, size);
    int64_t data = 1, target, source = 5;
    int (*copy_when)(void *, void *, const void *, size_t, atomic_int *);
    static atomic_int flag;
    void *stream = NULL;
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(&data, 1), .reduction = DL_SUM};

    (void)context;
    *(void **)&copy_when = of_double("double_copy_when");
    if (rank == 0) {
        CHECK_EQUAL(cuda->stream_create(&stream, 1, 0), 0);
        CHECK_EQUAL(copy_when(stream, &target, &source, sizeof source, &flag), 0);
        args.tensor.stream = stream;
    }
    CHECK(dl_group_run(group, &args,
                       rank == 0 ? dl_deadline_after(200 * DL_MILLISECOND) : soon())
          != DL_OK);
    CHECK_CONTAINS(dl_last_error()->text, "the stream of its array has not reached it");
    CHECK_CONTAINS(dl_last_error()->text, "group late, rank 0 of 2");
    CHECK_EQUAL(data, 1);
    atomic_store(&flag, 1);
    if (rank == 0) {
        CHECK_EQUAL(cuda->stream_synchronize(stream), 0);
        cuda->stream_destroy(stream);
    }
    end_group(group);
}

CHECK_CASE(a_stream_that_does_not_come_is_named_on_all_ranks)
{
    run_staging(2, come_late);
}

static _Thread_local bool is_interrupted;

static dl_status
interrupt(void)
{
    return is_interrupted ? dl_fail(DL_INTERRUPTED, "interrupted by the test") : DL_OK;
}

/* The stream does not reach the first operation, which is interrupted; nor that of the
 * second group, which is closed meanwhile. */
CHECK_CASE(a_wait_for_a_stream_ends_with_an_interrupt_or_the_group)
{
    const dl_cuda_table *cuda = load_cuda();
    int64_t data = 1, target, source = 5;
    int (*copy_when)(void *, void *, const void *, size_t, atomic_int *);
    int (*events_alive)(void);
    static atomic_int flag;
    void *stream;
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(&data, 1), .reduction = DL_SUM};
    dl_work *works[2];

    *(void **)&copy_when = of_double("double_copy_when");
    *(void **)&events_alive = of_double("double_events_alive");
    device_engine = "gloo";
    dl_interrupt_install(interrupt);
    CHECK_OK(dl_hash_store_new(&store));
    CHECK_EQUAL(cuda->stream_create(&stream, 1, 0), 0);
    CHECK_EQUAL(copy_when(stream, &target, &source, sizeof source, &flag), 0);
    args.tensor.stream = stream;
    dl_group *group = join_staging("interrupted", 0, 1);
    is_interrupted = true;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INTERRUPTED);
    is_interrupted = false;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_CANCELLED);
    CHECK_CONTAINS(dl_last_error()->text, "all_reduce #1 was interrupted");
    end_group(group);
    group = join_staging("closed", 0, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dl_group_submit(group, &args, soon(), &works[i]));
    }
    end_group(group);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(dl_work_wait(works[i], soon()), DL_CLOSED);
        dl_work_unref(works[i]);
    }
    atomic_store(&flag, 1);
    CHECK_EQUAL(cuda->stream_synchronize(stream), 0);
    cuda->stream_destroy(stream);
    CHECK_EQUAL(data, 1);
    CHECK_EQUAL(events_alive(), 0);
    dl_store_unref(store);
    dl_interrupt_install(NULL);
}

/* At DETAIL ranks compare what they call, wherever their arrays are. */
static void
call_differently(int rank, int size, void *context)
{
    dl_group *group = join_staging("d", rank, size);
    int64_t data[3] = {rank, rank, rank};
    dl_call args = {.op = DL_ALL_REDUCE, .reduction = DL_SUM};

    (void)context;
    args.tensor = rank == 0 ? device_tensor(data, 2) : tensor_of(data, 2, DL_INT64);
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_EQUAL(data[0], 1);
    args.tensor = device_tensor(data, rank == 0 ? 2 : 3);
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "Tensor shapes: [2] vs [3]");
    CHECK_EQUAL(data[2], rank);
    end_group(group);
}

CHECK_CASE(a_mismatch_is_reported_before_anything_is_sent)
{
    dl_debug_level_set(DL_DEBUG_DETAIL);
    run_staging(2, call_differently);
}

/* The backend that moves nothing gets arrays as they are, and needs no runtime. */
CHECK_CASE(a_backend_that_touches_no_array_takes_any)
{
    dl_group_options options = {
        .name = "fake", .backend = "fake", .rank = 1, .size = 4, .timeout = DL_SECOND};
    int64_t data[2] = {1, 2};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 2), .reduction = DL_SUM};
    dl_call message = {.op = DL_SEND, .tensor = device_tensor(data, 2), .peer = 0};
    dl_device_options unset = {0};
    dl_group *group;
    dl_work *work;

    setenv("DOUBLE_CUDA_DEVICES", "0", 1);
    CHECK_OK(dl_hash_store_new(&store));
    CHECK_OK(dl_group_new(&options, store, &group));
    CHECK_OK(dl_device_serve(group, "fake", &unset));
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_OK(dl_group_submit(group, &args, soon(), &work));
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    CHECK_OK(dl_group_post(group, &message, soon(), &work));
    dl_work_unref(work);
    CHECK_EQUAL(data[1], 2);
    end_group(group);
    dl_store_unref(store);
}
