/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/device/stream_marks.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/device/device.h"

/* A wait polls for this long without a sleep, since most streams have reached their
 * marks already, and then at intervals that grow from POLL_FIRST to POLL_LAST. */
#define AWAKE (100 * INT64_C(1000))
#define POLL_FIRST (50 * INT64_C(1000))
#define POLL_LAST (2 * DL_MILLISECOND)

static dl_status
check_capture(const dl_group *group, const dl_cuda_table *cuda, void *stream)
{
    int state = DL_CUDA_CAPTURE_NONE;
    int result = cuda->stream_is_capturing(stream, &state);

    if (result == DL_CUDA_CAPTURE_IMPLICIT || state != DL_CUDA_CAPTURE_NONE) {
        cuda->last_error();
        return dl_fail(DL_INVALID,
                       "%s's operations cannot be captured into a graph, and the "
                       "array's stream is being captured; NCCL's can",
                       dl_device_backend_name(group));
    }
    return dl_cuda_check(cuda, result, "cudaStreamIsCapturing");
}

static dl_status
mark_stream(dl_stream_marks *self, const dl_group *group, void *stream)
{
    const dl_cuda_table *cuda = self->cuda;
    void *event;

    DL_TRY(check_capture(group, cuda, stream));
    DL_TRY(dl_cuda_check(cuda, cuda->event_create(&event, DL_CUDA_EVENT_NO_TIMING),
                         "cudaEventCreateWithFlags"));
    self->events[self->count++] = event;
    return dl_cuda_check(cuda, cuda->event_record(event, stream), "cudaEventRecord");
}

static dl_status
mark_all(dl_stream_marks *self, const dl_group *group, const dl_arrays *arrays)
{
    void *previous = NULL;
    const dl_tensor *tensor;

    for (int i = 0; (tensor = dl_arrays_at(arrays, i)) != NULL; i++) {
        if (self->count == 0 || tensor->stream != previous) {
            DL_TRY(mark_stream(self, group, tensor->stream));
        }
        previous = tensor->stream;
    }
    return DL_OK;
}

dl_status
dl_stream_marks_new(const dl_group *group, const dl_call *call, dl_stream_marks **marks)
{
    dl_arrays arrays = dl_call_arrays(call, group->size);
    const dl_cuda_table *cuda;
    int count = 0, previous;

    DL_TRY(dl_cuda_load(&cuda));
    while (dl_arrays_at(&arrays, count) != NULL) {
        count++;
    }
    dl_stream_marks *self = calloc(1, sizeof *self + (size_t)count * sizeof(void *));
    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->cuda = cuda;
    self->device = dl_arrays_at(&arrays, 0)->device_index;
    dl_status status = dl_cuda_enter(cuda, self->device, &previous);
    if (status == DL_OK) {
        status = mark_all(self, group, &arrays);
        dl_cuda_leave(cuda, self->device, previous);
    }
    if (status != DL_OK) {
        dl_stream_marks_free(self);
        return status;
    }
    *marks = self;
    return DL_OK;
}

void
dl_stream_marks_free(dl_stream_marks *marks)
{
    int previous;

    if (marks != NULL && marks->count > 0
        && dl_cuda_enter(marks->cuda, marks->device, &previous) == DL_OK) {
        for (int i = 0; i < marks->count; i++) {
            marks->cuda->event_destroy(marks->events[i]);
        }
        dl_cuda_leave(marks->cuda, marks->device, previous);
    }
    free(marks);
}

static dl_status
fail_not_reached(const dl_group *group, const dl_op_context *op)
{
    char *label = dl_label_new(group->name, group->rank, group->size);

    dl_fail(DL_TIMEOUT,
            "%s #%" PRIu64 " timed out after %" PRId64
            "ms in %s: the stream of its array has not reached it",
            dl_op_type_name(op->fingerprint.op), op->sequence,
            op->deadline.limit / DL_MILLISECOND, label == NULL ? group->name : label);
    free(label);
    return DL_TIMEOUT;
}

/* Polls instead of blocking in CUDA: there is a deadline, and other threads may
 * abort. */
static dl_status
await_mark(const dl_cuda_table *cuda, dl_group *group, const dl_op_context *op,
           void *event)
{
    int64_t awake_until = dl_now() + AWAKE;
    int64_t pause = POLL_FIRST;
    int result;

    while ((result = cuda->event_query(event)) == DL_CUDA_NOT_READY) {
        /* Some versions keep "not ready" as the thread's last error. */
        cuda->last_error();
        if (dl_now() < awake_until) {
            sched_yield();
            continue;
        }
        DL_TRY(dl_group_admit(group));
        if (dl_deadline_passed(op->deadline)) {
            return fail_not_reached(group, op);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(op->deadline, pause)));
        pause = pause < POLL_LAST ? pause + POLL_FIRST : pause;
    }
    return dl_cuda_check(cuda, result, "cudaEventQuery");
}

dl_status
dl_stream_marks_enter(const dl_stream_marks *marks, dl_group *group,
                      const dl_op_context *op, dl_device_stay *stay)
{
    const dl_cuda_table *cuda = marks->cuda;
    dl_status status = DL_OK;

    *stay = (dl_device_stay){
        .cuda = cuda, .device = marks->device, .mode = DL_CUDA_MODE_RELAXED};
    DL_TRY(dl_cuda_enter(cuda, stay->device, &stay->previous));
    cuda->exchange_mode(&stay->mode);
    for (int i = 0; status == DL_OK && i < marks->count; i++) {
        status = await_mark(cuda, group, op, marks->events[i]);
    }
    if (status != DL_OK) {
        dl_stream_marks_leave(stay);
    }
    return status;
}

void
dl_stream_marks_leave(const dl_device_stay *stay)
{
    int mode = stay->mode;

    stay->cuda->exchange_mode(&mode);
    dl_cuda_leave(stay->cuda, stay->device, stay->previous);
}
