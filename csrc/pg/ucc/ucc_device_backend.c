/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_device_backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "pg/device/cuda_table.h"
#include "pg/group_state.h"
#include "pg/ucc/ucc_backend.h"
#include "store/prefix_store.h"

typedef struct engine {
    dl_device_backend base;
    /* fixed after init */
    const dl_cuda_table *cuda;
    dl_store *store; /* a reference, with a prefix of its own */
    char *name;      /* of the inner group */
    int rank;
    int size;
    /* written by the thread that has the outer group's turn for devices */
    _Atomic(dl_group *) group; /* inner group; NULL before the first operation */
    int device;
    /* An abort before there is an inner group; set once. */
    atomic_bool has_cause;
    dl_error cause;
} engine;

/* The events that the streams of an operation have to reach; kept until its work is
 * done. */
typedef struct places {
    dl_work_notice notice;
    const dl_cuda_table *cuda;
    int device;
    int count;
    void *events[];
} places;

static engine *
engine_of(dl_device_backend *backend)
{
    return (engine *)(void *)backend;
}

static void
places_free(places *self)
{
    int previous;

    if (dl_cuda_enter(self->cuda, self->device, &previous) == DL_OK) {
        for (int i = 0; i < self->count; i++) {
            self->cuda->event_destroy(self->events[i]);
        }
        dl_cuda_leave(self->cuda, self->device, previous);
    }
    free(self);
}

static void
forget(dl_work_notice *notice)
{
    places_free(DL_LIST_ENTRY(notice, places, notice));
}

/* Fails if the stream is being captured: an event recorded in a capture never
 * completes. */
static dl_status
check_capture(const dl_cuda_table *cuda, void *stream)
{
    int state = DL_CUDA_CAPTURE_NONE;
    int result = cuda->stream_is_capturing(stream, &state);

    if (result == DL_CUDA_CAPTURE_IMPLICIT || state != DL_CUDA_CAPTURE_NONE) {
        cuda->last_error();
        return dl_fail(DL_INVALID,
                       "UCC's operations cannot be captured into a graph, and the "
                       "array's stream is being captured; NCCL's can");
    }
    return dl_cuda_check(cuda, result, "cudaStreamIsCapturing");
}

static dl_status
mark(places *self, void *stream)
{
    void *event;

    DL_TRY(check_capture(self->cuda, stream));
    DL_TRY(dl_cuda_check(self->cuda,
                         self->cuda->event_create(&event, DL_CUDA_EVENT_NO_TIMING),
                         "cudaEventCreateWithFlags"));
    self->events[self->count++] = event;
    return dl_cuda_check(self->cuda, self->cuda->event_record(event, stream),
                         "cudaEventRecord");
}

/* Records events, and replaces the streams of the arrays by them. */
static dl_status
mark_all(places *self, const dl_arrays *arrays)
{
    void *previous = NULL;
    const dl_tensor *tensor;

    for (int i = 0; (tensor = dl_arrays_at(arrays, i)) != NULL; i++) {
        if (self->count == 0 || tensor->stream != previous) {
            DL_TRY(mark(self, tensor->stream));
        }
        previous = tensor->stream;
        /* The arrays are a copy that belongs to this call. */
        ((dl_tensor *)(uintptr_t)tensor)->stream = self->events[self->count - 1];
    }
    return DL_OK;
}

static int
count_of(const dl_arrays *arrays)
{
    int count = 0;

    while (dl_arrays_at(arrays, count) != NULL) {
        count++;
    }
    return count;
}

/* Submits one operation to the inner group; `call` is a copy that belongs to this
 * call. */
static dl_status
submit(engine *self, const dl_call *call, dl_deadline deadline, dl_work **work)
{
    dl_arrays arrays = dl_call_arrays(call, self->size);
    size_t room = (size_t)count_of(&arrays) * sizeof(void *);
    places *made = calloc(1, sizeof *made + room);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->cuda = self->cuda;
    made->device = self->device;
    made->notice.call = forget;
    dl_status status = mark_all(made, &arrays);
    if (status == DL_OK) {
        status = dl_group_submit(self->group, call, deadline, work);
    }
    if (status != DL_OK) {
        places_free(made);
        return status;
    }
    dl_work_notify(*work, &made->notice);
    return DL_OK;
}

static dl_status
submit_item(engine *self, const dl_device_item *item, dl_deadline deadline,
            dl_work **work)
{
    dl_call *copy;

    DL_TRY(dl_call_copy(item->call, self->size, (dl_room){0}, &copy));
    dl_status status = submit(self, copy, deadline, work);
    free(copy);
    return status;
}

/* Submits all operations.  They end in order, and those after a failure fail as well,
 * so the last work stands for all. */
static dl_status
submit_all(engine *self, const dl_device_call *call, dl_work **work)
{
    dl_work *last = NULL;

    for (size_t i = 0; i < call->count; i++) {
        dl_work *next = NULL;
        dl_status status = submit_item(self, &call->items[i], call->deadline, &next);
        dl_work_unref(last);
        DL_TRY(status);
        last = next;
    }
    *work = last;
    return DL_OK;
}

/* Makes the inner group.  The device must be current, because UCC asks for it when it
 * creates its context. */
static dl_status
meet(engine *self, int device, dl_deadline deadline)
{
    dl_group_options options = {
        .name = self->name,
        .backend = DL_UCC_CUDA_GROUP,
        .rank = self->rank,
        .size = self->size,
        .timeout = deadline.limit,
    };
    dl_group *made;

    if (self->group != NULL) {
        return self->device == device
                   ? DL_OK
                   : dl_fail(DL_INVALID,
                             "the array is on cuda:%d, but group %s has used cuda:%d "
                             "since its first operation; a process uses one device",
                             device, self->name, self->device);
    }
    DL_TRY(dl_group_new(&options, self->store, &made));
    /* The outer group's operation is recorded; the inner group's is not. */
    dl_recorder_leave(&made->seat);
    made->seat = (dl_seat){0};
    made->is_on_device = true;
    self->device = device;
    atomic_store(&self->group, made);
    if (atomic_load(&self->has_cause)) {
        dl_group_set_cause(made, &self->cause);
    }
    return DL_OK;
}

/* Refuses messages, which UCC lacks. */
static dl_status
check_call(const dl_device_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        dl_op_type op = call->items[i].call->op;
        if (op == DL_SEND || op == DL_RECV || op == DL_RECV_ANY) {
            return dl_fail(DL_UNSUPPORTED,
                           "%s: UCC has no point-to-point messages for arrays on "
                           "devices; use \"cuda:nccl\", or copy the array to the CPU",
                           dl_op_type_name((uint8_t)op));
        }
    }
    return DL_OK;
}

static dl_status
enqueue(dl_device_backend *backend, const dl_device_call *call, dl_work **work)
{
    engine *self = engine_of(backend);
    dl_arrays arrays = dl_call_arrays(call->items[0].call, self->size);
    int device = dl_arrays_at(&arrays, 0)->device_index;
    int previous;

    DL_TRY(check_call(call));
    DL_TRY(dl_cuda_enter(self->cuda, device, &previous));
    dl_status status = meet(self, device, call->deadline);
    if (status == DL_OK) {
        status = submit_all(self, call, work);
    }
    dl_cuda_leave(self->cuda, device, previous);
    return status;
}

static dl_status
connect_engine(dl_device_backend *backend, int device, dl_deadline deadline)
{
    engine *self = engine_of(backend);
    int previous;

    DL_TRY(dl_cuda_enter(self->cuda, device, &previous));
    dl_status status = meet(self, device, deadline);
    dl_cuda_leave(self->cuda, device, previous);
    return status;
}

/* A part makes its own inner group, with its first operation. */
static dl_status
split(dl_device_backend *backend, const dl_device_split_args *wanted,
      dl_deadline deadline, dl_device_backend *child)
{
    (void)backend;
    (void)wanted;
    (void)deadline;
    (void)child;
    return DL_OK;
}

/* Called with the outer group's lock held. */
static void
abort_engine(dl_device_backend *backend, const dl_error *cause)
{
    engine *self = engine_of(backend);

    if (!atomic_load(&self->has_cause)) {
        self->cause = *cause;
        atomic_store(&self->has_cause, true);
    }
    dl_group *group = atomic_load(&self->group);
    if (group == NULL) {
        return;
    }
    dl_group_set_cause(group, cause);
    pthread_mutex_lock(&group->lock);
    if (group->backend != NULL) {
        group->backend->ops->abort(group->backend, cause);
    }
    pthread_mutex_unlock(&group->lock);
}

/* Must not block, because the outer group's lock is held; free_engine() closes the
 * inner group. */
static void
leave(dl_device_backend *backend)
{
    (void)backend;
}

static void
free_engine(dl_device_backend *backend)
{
    engine *self = engine_of(backend);

    if (self->group != NULL) {
        dl_group_close(self->group);
        dl_group_unref(self->group);
    }
    if (self->store != NULL) {
        dl_store_unref(self->store);
    }
    free(self->name);
    free(self);
}

static const dl_device_ops engine_ops = {
    .name = "ucc",
    .enqueue = enqueue,
    .split = split,
    .connect = connect_engine,
    .abort = abort_engine,
    .leave = leave,
    .free = free_engine,
};

static dl_status
open_engine(engine *self, const dl_device_backend_options *options)
{
    DL_TRY(dl_cuda_load(&self->cuda));
    if (asprintf(&self->name, "%s on cuda", options->group_name) < 0) {
        self->name = NULL;
        return dl_fail_no_memory();
    }
    return dl_prefix_store_new(DL_LITERAL("devices"), options->store, &self->store);
}

dl_status
dl_ucc_device_backend_new(const dl_device_backend_options *options,
                          dl_device_backend **backend)
{
    engine *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base.ops = &engine_ops;
    self->rank = options->rank;
    self->size = options->size;
    dl_status status = open_engine(self, options);
    if (status != DL_OK) {
        free_engine(&self->base);
        return status;
    }
    *backend = &self->base;
    return DL_OK;
}
