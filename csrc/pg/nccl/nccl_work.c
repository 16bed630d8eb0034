/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/references.h"
#include "base/thread.h"
#include "pg/nccl/nccl_watch.h"

/* A thread that waits for a work polls at intervals that grow from POLL_EVERY to
 * POLL_SELDOM. */
#define POLL_EVERY (50 * INT64_C(1000))
#define POLL_SELDOM (2 * DL_MILLISECOND)

static dl_nccl_work *
work_of(dl_work *work)
{
    return (dl_nccl_work *)(void *)work;
}

static void
poll_work(dl_work *work)
{
    dl_nccl_watch_reap(work_of(work));
}

/* Blocks the calling thread; order_work() is enough to order streams. */
static dl_status
wait_work(dl_work *work, dl_deadline deadline)
{
    int64_t pause = POLL_EVERY;

    for (;;) {
        poll_work(work);
        if (dl_work_is_done(work)) {
            return DL_OK;
        }
        if (dl_deadline_passed(deadline)) {
            return DL_TIMEOUT;
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, pause)));
        pause = pause < POLL_SELDOM ? pause + POLL_EVERY : pause;
    }
}

/* Orders the streams after the work's event.  For a work that is done, whose group may
 * be torn down by now, only its result is left to return.  A captured one is done from
 * the start, and its event orders the streams within the graph. */
static dl_status
order_streams(dl_nccl_work *self, void *const *streams, size_t count)
{
    const dl_cuda_table *cuda = self->watch->cuda;
    int result = DL_CUDA_SUCCESS, previous;

    if (dl_work_is_done(&self->work) && !self->is_captured) {
        return dl_work_result(&self->work);
    }
    DL_TRY(dl_cuda_enter(cuda, self->device, &previous));
    for (size_t i = 0; i < count && result == DL_CUDA_SUCCESS; i++) {
        result = cuda->stream_wait(streams[i], self->event, 0);
    }
    dl_cuda_leave(cuda, self->device, previous);
    return dl_cuda_check(cuda, result, "cudaStreamWaitEvent");
}

static dl_status
order_work(dl_work *work, void *stream)
{
    return order_streams(work_of(work), &stream, 1);
}

static dl_status
order_arrays(dl_work *work)
{
    dl_nccl_work *self = work_of(work);

    return order_streams(self, self->streams, self->stream_count);
}

/* May run on any thread, since destroying an event does not block. */
static void
free_work(dl_work *work)
{
    dl_nccl_work *self = work_of(work);
    const dl_cuda_table *cuda = self->watch->cuda;
    int previous;

    if (self->event != NULL && dl_cuda_enter(cuda, self->device, &previous) == DL_OK) {
        cuda->event_destroy(self->event);
        dl_cuda_leave(cuda, self->device, previous);
    }
    dl_nccl_watch_unref(self->watch);
    dl_work_fini(work);
    free(self->streams);
    free(self);
}

static const dl_work_ops work_ops = {
    .wait = wait_work,
    .free = free_work,
    .poll = poll_work,
    .order = order_work,
    .order_arrays = order_arrays,
};

dl_status
dl_nccl_work_new(dl_nccl_watch *watch, dl_op_type op, int device, dl_nccl_work **work)
{
    dl_nccl_work *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    dl_work_init(&made->work, &work_ops, op);
    dl_reference_take(&watch->references);
    made->watch = watch;
    made->device = device;
    dl_status status = dl_cuda_check(
        watch->cuda, watch->cuda->event_create(&made->event, DL_CUDA_EVENT_NO_TIMING),
        "cudaEventCreateWithFlags");
    if (status != DL_OK) {
        made->event = NULL;
        dl_nccl_work_drop(made);
        return status;
    }
    *work = made;
    return DL_OK;
}

dl_status
dl_nccl_work_add_stream(dl_nccl_work *work, void *stream)
{
    size_t count = work->stream_count;

    for (size_t i = 0; i < count; i++) {
        if (work->streams[i] == stream) {
            return DL_OK;
        }
    }
    void **streams = realloc(work->streams, (count + 1) * sizeof *streams);
    if (streams == NULL) {
        return dl_fail_no_memory();
    }
    streams[count] = stream;
    work->streams = streams;
    work->stream_count = count + 1;
    return DL_OK;
}

void
dl_nccl_work_drop(dl_nccl_work *work)
{
    dl_work_unref(&work->work);
    dl_work_unref(&work->work);
}

void
dl_nccl_work_describe(const dl_nccl_work *work, char *text, size_t size)
{
    const char *name = dl_op_type_name((uint8_t)work->work.op);
    uint64_t sequence = atomic_load(&work->work.sequence);
    char number[24] = "";

    if (sequence > 0) {
        snprintf(number, sizeof number, " #%" PRIu64, sequence);
    }
    snprintf(text, size, "%s%s on cuda:%d", name, number, work->device);
}

int
dl_nccl_work_poll(const dl_nccl_work *work, bool is_launched)
{
    const dl_nccl_watch *watch = work->watch;
    /* An event that has not been recorded counts as completed. */
    int result =
        is_launched ? watch->cuda->event_query(work->event) : DL_CUDA_NOT_READY;

    if (result == DL_CUDA_SUCCESS) {
        return 1;
    }
    if (result == DL_CUDA_NOT_READY && is_launched) {
        /* Some versions keep DL_CUDA_NOT_READY as the thread's last error: clear it. */
        watch->cuda->last_error();
    }
    if (result == DL_CUDA_NOT_READY && !dl_deadline_passed(work->deadline)) {
        return 0;
    }
    char name[DL_NCCL_WORK_TEXT_SIZE];
    dl_nccl_work_describe(work, name, sizeof name);
    if (result == DL_CUDA_NOT_READY) {
        dl_fail(DL_TIMEOUT,
                "%s timed out after %" PRId64
                "ms in %s: it was started here, but %s; look for a rank that did not "
                "call it, or called a different operation",
                name, work->deadline.limit / DL_MILLISECOND, watch->label,
                is_launched ? "has not ended"
                            : "NCCL is still connecting the ranks for it");
    } else {
        dl_cuda_check(watch->cuda, result, "cudaEventQuery");
        dl_fail_while("%s in %s", name, watch->label);
    }
    return -1;
}
