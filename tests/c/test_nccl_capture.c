/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations on streams that are being captured into a graph. */
#include <dlfcn.h>

#include "base/thread.h"
#include "device_groups.h"
#include "pg/device/cuda_table.h"

/* What the double of the CUDA runtime has beside the table. */
static struct {
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*launch)(void *graph, void *stream);
    int (*spoilt)(void);
    int (*synchronize)(void *stream);
    int (*destroy)(void *graph);
} runtime;

static const dl_cuda_table *cuda;

static void
find_runtime(void)
{
    CHECK_OK(dl_cuda_load(&cuda));
    void *library = dlopen(getenv("DISTLITE_CUDART_LIBRARY"), RTLD_NOW);
    CHECK(library != NULL);
    *(void **)&runtime.begin = dlsym(library, "cudaStreamBeginCapture");
    *(void **)&runtime.end = dlsym(library, "cudaStreamEndCapture");
    *(void **)&runtime.launch = dlsym(library, "cudaGraphLaunch");
    *(void **)&runtime.spoilt = dlsym(library, "double_spoilt_captures");
    *(void **)&runtime.destroy = dlsym(library, "cudaGraphExecDestroy");
    *(void **)&runtime.synchronize = dlsym(library, "cudaStreamSynchronize");
}

static void *
open_stream(void)
{
    void *stream = NULL;

    CHECK(cuda->stream_create(&stream, 0, 0) == DL_CUDA_SUCCESS);
    return stream;
}

static dl_status
try_sum_on(dl_group *group, int64_t *data, void *stream, dl_work **work)
{
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 1), .reduction = DL_SUM};

    args.tensor.stream = stream;
    return dl_group_submit(group, &args, dl_group_deadline(group), work);
}

static void
check_refused(dl_group *group, int64_t *data, void *stream, const char *text)
{
    dl_work *work = NULL;

    CHECK_STATUS(try_sum_on(group, data, stream, &work), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, text);
}

/* While an operation from before the capture is being watched. */
static void
capture_graph(int rank, int size, void *context)
{
    dl_group *group = join_device_group("graph", rank, size, GROUP_PATIENCE);
    void *stream = open_stream();
    void *other = open_stream();
    int64_t before = 1;
    int64_t data = rank + 1;
    dl_work *early, *work;
    void *graph;

    (void)context;
    warm_up(group);
    if (rank == 0) {
        CHECK_OK(try_sum_on(group, &before, other, &early));
        CHECK(runtime.begin(stream, 0) == 0);
        dl_sleep_until(dl_deadline_after(30 * DL_MILLISECOND));
    }
    CHECK_OK(dl_group_barrier(group, soon()));
    if (rank == 1) {
        CHECK_OK(try_sum_on(group, &before, other, &early));
        CHECK(runtime.begin(stream, 0) == 0);
    }
    CHECK_OK(dl_work_wait(early, soon()));
    CHECK_OK(try_sum_on(group, &data, stream, &work));
    /* It is not known when a graph will run. */
    CHECK(dl_work_is_done(work));
    CHECK_OK(dl_work_wait(work, soon()));
    CHECK_OK(dl_work_order(work, stream));
    check_refused(group, &before, other, "until that has ended");
    check_refused(group, &before, NULL, "by the default stream while");
    CHECK_OK(dl_group_barrier(group, soon()));
    CHECK(runtime.end(stream, &graph) == 0);
    CHECK_EQUAL(data, rank + 1);
    runtime.launch(graph, stream);
    runtime.synchronize(stream);
    CHECK_EQUAL(data, size * (size + 1) / 2);
    CHECK_EQUAL(runtime.spoilt(), 0);
    dl_work_unref(early);
    dl_work_unref(work);
    /* NCCL keeps a communicator as long as a graph holds its operations: closing does
     * not wait for that. */
    int64_t begun = dl_now();
    end_group(group);
    CHECK(dl_now() - begun < 5 * DL_SECOND);
    runtime.destroy(graph);
    cuda->stream_destroy(stream);
    cuda->stream_destroy(other);
}

CHECK_CASE(captured_operations_run_with_their_graph)
{
    find_runtime();
    run_ranks(2, capture_graph);
}

/* It would have to allocate memory and to wait. */
static void
capture_too_early(int rank, int size, void *context)
{
    dl_group *group = join_device_group("early", rank, size, GROUP_PATIENCE);
    void *stream = open_stream();
    int64_t data = 1;
    dl_work *work;
    void *graph;

    (void)context;
    CHECK(runtime.begin(stream, 0) == 0);
    check_refused(group, &data, stream, "run the operation once before");
    CHECK_OK(dl_group_barrier(group, soon()));
    CHECK(runtime.end(stream, &graph) == 0);
    runtime.launch(graph, stream);
    runtime.destroy(graph);
    CHECK_OK(dl_group_barrier(group, soon()));
    CHECK_OK(try_sum_on(group, &data, stream, &work));
    CHECK_OK(dl_work_wait(work, soon()));
    CHECK_EQUAL(data, size);
    dl_work_unref(work);
    end_group(group);
    cuda->stream_destroy(stream);
}

CHECK_CASE(a_communicator_is_not_made_in_a_capture)
{
    find_runtime();
    run_ranks(2, capture_too_early);
}
