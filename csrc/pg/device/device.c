/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/device/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "pg/agree/agreement.h"
#include "pg/backend_table.h"
#include "pg/device/cuda_table.h"
#include "pg/device/device_state.h"
#include "pg/device/pinned.h"

/* The records of one batch, completed when its work ends. */
typedef struct ending {
    dl_work_notice notice;
    const dl_work *work;
    size_t count;
    dl_record *records[];
} ending;

/* Its address identifies the thread that has a batch open. */
static _Thread_local char own;

static dl_status
make_side(dl_group *group, const dl_backend_kind *kind,
          const dl_device_options *options)
{
    dl_device_side *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->side.kind = kind;
    made->options = *options;
    if (dl_debug_level_get() == DL_DEBUG_DETAIL) {
        made->side.agreement = dl_agreement_new(group, kind->name);
        if (made->side.agreement == NULL) {
            free(made);
            return DL_NO_MEMORY;
        }
    }
    dl_recorder_join(&made->side.seat, group->name, kind->name, group->rank,
                     group->size);
    dl_lane_init(&made->side.lane);
    group->device = made;
    return DL_OK;
}

dl_status
dl_device_serve(dl_group *group, const char *name, const dl_device_options *options)
{
    const dl_backend_kind *kind = dl_backend_find(name);

    if (kind != NULL && kind->make_on_device != NULL) {
        return make_side(group, kind, options);
    }
    if (kind == NULL || kind->make != group->host.kind->make) {
        return dl_fail(DL_INVALID, "there is no backend \"%s\" for arrays on devices",
                       name);
    }
    /* Another thread may close the group meanwhile. */
    pthread_mutex_lock(&group->lock);
    bool is_open = !atomic_load(&group->is_closed);
    if (is_open && group->host.backend->ops->is_alone) {
        group->device_arrays = DL_ARRAYS_PASSED;
    } else if (is_open) {
        group->device_arrays = DL_ARRAYS_STAGED;
    }
    pthread_mutex_unlock(&group->lock);
    return is_open ? DL_OK : dl_fail(DL_CLOSED, "group %s is closed", group->name);
}

const char *
dl_device_name(const dl_group *group)
{
    return group->device == NULL ? NULL : group->device->side.kind->name;
}

bool
dl_device_is_served(const dl_group *group)
{
    return group->device != NULL || group->device_arrays != DL_ARRAYS_REFUSED;
}

const char *
dl_device_backend_name(const dl_group *group)
{
    return group->device == NULL ? group->backend_name : dl_device_name(group);
}

dl_status
dl_device_check(const dl_group *group, const dl_tensor *tensor, const char *name)
{
    if (!dl_device_is_served(group)) {
        return dl_fail(DL_UNSUPPORTED,
                       "%s: the array is on cuda:%d, but group %s, created with "
                       "backend \"%s\", has no backend for that device; create the "
                       "group with backend=\"nccl\", \"cpu:gloo,cuda:nccl\" or "
                       "\"cpu:gloo,cuda:gloo\", which copies it to the CPU's memory "
                       "and back",
                       name, tensor->device_index, group->name, group->backend_name);
    }
    if (!tensor->is_contiguous && group->device_arrays != DL_ARRAYS_PASSED) {
        return dl_fail(DL_INVALID,
                       "%s: the array on cuda:%d is not contiguous; the %s backend "
                       "needs a C-contiguous array: pass a contiguous copy",
                       name, tensor->device_index, dl_device_backend_name(group));
    }
    return DL_OK;
}

dl_status
dl_device_check_message(const dl_group *group, const char *name)
{
    return group->device != NULL || group->device_arrays == DL_ARRAYS_PASSED
               ? DL_OK
               : dl_fail(DL_UNSUPPORTED,
                         "%s: the %s backend has no point-to-point messages for arrays "
                         "on devices; use \"cuda:nccl\", or copy the array to the CPU",
                         name, dl_device_backend_name(group));
}

/* Only the group's CPU side knows which ranks are gone. */
static dl_status
check_lost(void *context, int rank)
{
    return dl_group_lost(context, rank);
}

static dl_status
make_backend(dl_group *group, dl_deadline deadline, dl_backend **backend)
{
    dl_device_side *self = group->device;
    dl_backend_options options = {
        .store = group->store,
        .rank = group->rank,
        .size = group->size,
        .group_name = group->name,
        .on_device = &self->options,
        .lost = check_lost,
        .context = group,
    };

    return self->side.kind->make_on_device(&options, deadline, backend);
}

/* Returns the thread's last error as the cause of all later failures of the group, on
 * both of its sides. */
static dl_error
lasting_cause(const dl_group *group)
{
    dl_error cause = dl_error_for_others();
    dl_error told = {.status = cause.status};

    snprintf(told.text, sizeof told.text, "group %.200s is broken: %.1800s",
             group->name, cause.text);
    return told;
}

static dl_status
note_failure(dl_group *group, dl_status status)
{
    if (status == DL_OK || status == DL_UNSUPPORTED || status == DL_INVALID
        || status == DL_NOT_FOUND) {
        return status;
    }
    dl_error cause = lasting_cause(group);
    dl_group_set_cause(group, &cause);
    return status;
}

/* Makes the backend, with the turn held.  The lock is for threads that abort
 * meanwhile. */
static dl_status
open_device_backend(dl_group *group, dl_deadline deadline)
{
    dl_device_side *self = group->device;
    dl_backend *made;

    DL_TRY(dl_group_admit(group));
    if (self->side.backend != NULL) {
        return DL_OK;
    }
    DL_TRY(note_failure(group, make_backend(group, deadline, &made)));
    pthread_mutex_lock(&group->lock);
    self->side.backend = made;
    if (atomic_load(&group->is_broken)) {
        /* The group was aborted or closed when there was nothing to abort yet. */
        made->ops->abort(made, &group->cause);
    }
    pthread_mutex_unlock(&group->lock);
    return dl_group_admit(group);
}

/* Threads begin their operations one after the other.  The callers ensure that all
 * ranks begin them in the same order. */
static dl_status
take_turn(dl_group *group, dl_deadline deadline)
{
    dl_status status = dl_lane_take(&group->device->side.lane, deadline);

    return status == DL_TIMEOUT
               ? dl_fail(DL_TIMEOUT,
                         "group %s timed out after %" PRId64
                         "ms: another thread's operation on a device has not started",
                         group->name, deadline.limit / DL_MILLISECOND)
               : status;
}

static void
pass_turn(dl_group *group)
{
    dl_group_pass_turn(group, &group->device->side);
}

static dl_record *
record_message(const dl_device_side *self, const dl_op *op)
{
    return dl_recorder_post(&self->side.seat, &op->context.fingerprint, op->call->tag,
                            op->context.deadline);
}

static bool
is_message(const dl_op *op)
{
    return dl_op_type_is_message((uint8_t)op->call->op);
}

/* Numbers the operations and records that they begin.  Called with the turn held. */
static void
record_start(dl_device_side *self, dl_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dl_op *op = &ops[i];
        if (!is_message(op)) {
            dl_side_begin(&self->side, &op->context);
        } else if (op->context.record == NULL) {
            op->context.record = record_message(self, op);
        }
    }
}

/* Runs on the thread that ends the work. */
static void
end_all(dl_work_notice *notice)
{
    ending *self = DL_LIST_ENTRY(notice, ending, notice);

    for (size_t i = 0; i < self->count; i++) {
        dl_recorder_end(self->records[i], self->work->status);
    }
    free(self);
}

static ending *
ending_new(const dl_op *ops, size_t count, const dl_work *work)
{
    ending *self = malloc(sizeof *self + count * sizeof *self->records);

    if (self != NULL) {
        *self = (ending){.notice.call = end_all, .work = work, .count = count};
        for (size_t i = 0; i < count; i++) {
            self->records[i] = ops[i].context.record;
        }
    }
    return self;
}

/* Records failures; operations that have begun are completed by the end of `work`.
 * Without memory the records end now, which is better than operations that seem to run
 * forever. */
static void
record_end(dl_op *ops, size_t count, dl_status status, dl_work *work)
{
    ending *made = status == DL_OK ? ending_new(ops, count, work) : NULL;

    if (made != NULL) {
        dl_work_notify(work, &made->notice);
    }
    for (size_t i = 0; i < count; i++) {
        if (made == NULL) {
            dl_recorder_end(ops[i].context.record, status);
        }
        ops[i].context.record = NULL;
    }
}

/* The host waits for the other ranks, which it does not otherwise. */
static dl_status
compare_calls(dl_device_side *self, const dl_batch *batch)
{
    for (size_t i = 0; self->side.agreement != NULL && i < batch->count; i++) {
        const dl_op *op = &batch->ops[i];
        if (!is_message(op)) {
            DL_TRY(dl_agreement_reach(&self->side, &op->context, op->call));
        }
    }
    return DL_OK;
}

/* Begins the operations of `batch`, which are `ops`.  Called with the turn held. */
static dl_status
enqueue_batch(dl_group *group, dl_op *ops, const dl_batch *batch, dl_work **work)
{
    dl_device_side *self = group->device;

    DL_TRY(open_device_backend(group, batch->deadline));
    record_start(self, ops, batch->count);
    dl_backend *backend = self->side.backend;
    dl_status status = compare_calls(self, batch);
    if (status == DL_OK) {
        status = backend->ops->enqueue(backend, batch, work);
    }
    (void)note_failure(group, status);
    record_end(ops, batch->count, status, *work);
    return status;
}

bool
dl_device_is_batching(const dl_group *group)
{
    const dl_device_side *self = group->device;

    return self != NULL
           && atomic_load_explicit(&self->batcher, memory_order_relaxed) == &own;
}

/* Frees an operation of a batch, and completes its record if it never began. */
static void
drop_op(dl_op *op)
{
    dl_recorder_end(op->context.record, DL_CANCELLED);
    free((void *)(uintptr_t)op->call);
}

/* The arguments are copied, since lists of blocks live on the caller's stack.  The
 * elements stay in the arrays, which the caller keeps. */
static dl_status
add_to_batch(dl_group *group, const dl_op *op)
{
    dl_device_side *self = group->device;
    dl_call *copy;

    if (self->batch_count == self->batch_capacity) {
        size_t capacity = self->batch_capacity * 2 + 8;
        dl_op *batch = realloc(self->batch, capacity * sizeof *batch);
        if (batch == NULL) {
            return dl_fail_no_memory();
        }
        self->batch = batch;
        self->batch_capacity = capacity;
    }
    DL_TRY(dl_call_copy(op->call, group->size, (dl_room){0}, &copy));
    dl_op *added = &self->batch[self->batch_count++];
    *added = (dl_op){copy, op->context};
    added->context.record =
        is_message(op) ? record_message(self, op)
                       : dl_recorder_queue(&self->side.seat, &op->context.fingerprint,
                                           op->context.deadline);
    return DL_OK;
}

static void
clear_batch(dl_device_side *self)
{
    for (size_t i = 0; i < self->batch_count; i++) {
        drop_op(&self->batch[i]);
    }
    free(self->batch);
    self->batch = NULL;
    self->batch_count = 0;
    self->batch_capacity = 0;
}

dl_status
dl_device_enqueue(dl_group *group, const dl_op *op, dl_work **work)
{
    dl_op copy = *op;
    dl_batch batch = {.ops = &copy, .count = 1, .deadline = op->context.deadline};

    DL_TRY(dl_group_admit(group));
    *work = NULL;
    if (dl_device_is_batching(group)) {
        return add_to_batch(group, op);
    }
    DL_TRY(take_turn(group, batch.deadline));
    dl_status status = enqueue_batch(group, &copy, &batch, work);
    pass_turn(group);
    return status;
}

/* The turn is held until the batch ends: an operation that another thread
 * begins meanwhile must not come in between, or ranks would disagree on
 * what belongs together. */
dl_status
dl_device_batch_begin(dl_group *group, dl_deadline deadline)
{
    if (group->device == NULL) {
        return dl_fail(DL_UNSUPPORTED,
                       "group %s has no backend that can batch operations",
                       group->name);
    }
    if (dl_device_is_batching(group)) {
        return dl_fail(DL_INVALID, "group %s has a batch open on this thread",
                       group->name);
    }
    DL_TRY(dl_group_admit(group));
    DL_TRY(take_turn(group, deadline));
    atomic_store_explicit(&group->device->batcher, &own, memory_order_relaxed);
    return DL_OK;
}

/* Checks that all arrays are on one device, since one stream carries them. */
static dl_status
check_devices(const dl_group *group)
{
    const dl_device_side *self = group->device;
    int first = -1;

    for (size_t i = 0; i < self->batch_count; i++) {
        dl_arrays arrays = dl_call_arrays(self->batch[i].call, group->size);
        int index = dl_arrays_at(&arrays, 0)->device_index;
        if (first >= 0 && index != first) {
            return dl_fail(DL_INVALID,
                           "a batch of group %s has arrays on cuda:%d and on cuda:%d",
                           group->name, first, index);
        }
        first = index;
    }
    return DL_OK;
}

static dl_status
issue_batch(dl_group *group, dl_deadline deadline, dl_work **work)
{
    dl_device_side *self = group->device;
    dl_batch batch = {.ops = self->batch,
                      .count = self->batch_count,
                      .is_batch = true,
                      .deadline = deadline};

    DL_TRY(check_devices(group));
    return enqueue_batch(group, self->batch, &batch, work);
}

/* The turn is passed on in any case, as a batch that fails is over. */
dl_status
dl_device_batch_end(dl_group *group, bool is_dropped, dl_deadline deadline,
                    dl_work **work)
{
    dl_device_side *self = group->device;
    dl_status status = DL_OK;

    *work = NULL;
    if (!dl_device_is_batching(group)) {
        return dl_fail(DL_INVALID, "group %s has no batch open on this thread",
                       group->name);
    }
    if (!is_dropped && self->batch_count > 0) {
        status = issue_batch(group, deadline, work);
    }
    clear_batch(self);
    atomic_store_explicit(&self->batcher, NULL, memory_order_relaxed);
    pass_turn(group);
    return status;
}

/* Read at each call, since programs set it after they have imported this library. */
bool
dl_device_blocks(void)
{
    return dl_environment_is_on(getenv("TORCH_NCCL_BLOCKING_WAIT") != NULL
                                    ? "TORCH_NCCL_BLOCKING_WAIT"
                                    : "NCCL_BLOCKING_WAIT");
}

dl_status
dl_device_run(dl_group *group, const dl_op *op)
{
    dl_work *work;

    /* All that follows may have to wait for other ranks. */
    dl_blocking_begin();
    DL_TRY(dl_device_enqueue(group, op, &work));
    if (work == NULL) {
        return DL_OK;
    }
    dl_status status = dl_work_order_arrays(work);
    if (status == DL_OK && (work->ignores_streams || dl_device_blocks())) {
        status = dl_work_wait(work, dl_deadline_after(-1));
    }
    dl_work_unref(work);
    return status;
}

/* For callers whose first operation should not pay for the rendezvous, or who want its
 * failure at once. */
dl_status
dl_device_connect(dl_group *group, int index, dl_deadline deadline)
{
    DL_TRY(dl_group_admit(group));
    DL_TRY(take_turn(group, deadline));
    dl_status status = open_device_backend(group, deadline);
    if (status == DL_OK) {
        dl_backend *backend = group->device->side.backend;
        status = note_failure(group, backend->ops->connect(backend, index, deadline));
    }
    pass_turn(group);
    return status;
}

void
dl_device_take_barriers(dl_group *group)
{
    group->device->takes_barriers = true;
}

bool
dl_device_takes_barriers(const dl_group *group)
{
    return group->device != NULL && group->device->takes_barriers;
}

/* Finds the device on which the ranks have met; -1 if they have not.  All ranks see the
 * same, since operations begin in the same order on all of them. */
static dl_status
find_device(dl_group *group, dl_deadline deadline, int *device)
{
    *device = -1;
    DL_TRY(dl_group_admit(group));
    DL_TRY(take_turn(group, deadline));
    const dl_backend *backend = group->device->side.backend;
    if (backend != NULL) {
        *device = backend->ops->device(backend);
    }
    pass_turn(group);
    return DL_OK;
}

/* Reduces one byte, and waits for the end on the host. */
static dl_status
meet_on_device(dl_group *group, void *byte, void *stream, int device,
               dl_deadline deadline)
{
    dl_tensor tensor = dl_tensor_of_bytes(byte, 1);
    dl_work *work;

    tensor.device = DL_CUDA;
    tensor.device_index = device;
    tensor.stream = stream;
    dl_call call = dl_call_all_reduce(&tensor, DL_MAX);
    DL_TRY(dl_group_submit(group, &call, deadline, &work));
    dl_status status = dl_work_order_arrays(work);
    if (status == DL_OK) {
        status = dl_work_wait(work, dl_deadline_after(-1));
    }
    dl_work_unref(work);
    return status;
}

/* Waits until the stream has run what is left on it, which is soon, because the
 * reduction before it has ended.  A stream that is being captured runs nothing to wait
 * for. */
static dl_status
await_stream(const dl_cuda_table *cuda, void *stream)
{
    int state = DL_CUDA_CAPTURE_NONE;

    DL_TRY(dl_cuda_check(cuda, cuda->stream_is_capturing(stream, &state),
                         "cudaStreamIsCapturing"));
    return state != DL_CUDA_CAPTURE_NONE
               ? DL_OK
               : dl_cuda_check(cuda, cuda->stream_synchronize(stream),
                               "cudaStreamSynchronize");
}

dl_status
dl_device_barrier(dl_group *group, void *stream, dl_deadline deadline)
{
    const dl_cuda_table *cuda;
    void *byte;
    int device, previous;

    if (!dl_device_takes_barriers(group) || dl_device_is_batching(group)) {
        return DL_OK;
    }
    DL_TRY(find_device(group, deadline, &device));
    if (device < 0) {
        return DL_OK;
    }
    dl_blocking_begin();
    DL_TRY(dl_cuda_load(&cuda));
    DL_TRY(dl_cuda_enter(cuda, device, &previous));
    dl_status status = dl_cuda_check(cuda, cuda->memory_new_ordered(&byte, 1, stream),
                                     "cudaMallocAsync");
    if (status == DL_OK) {
        status = meet_on_device(group, byte, stream, device, deadline);
        cuda->memory_free_ordered(byte, stream);
        status = status == DL_OK ? await_stream(cuda, stream) : status;
    }
    dl_cuda_leave(cuda, device, previous);
    return status;
}

/* Called with the parent's turn held; nobody else uses the child yet. */
static dl_status
split_backend(dl_group *parent, const dl_device_split_args *wanted,
              dl_deadline deadline, dl_group *child)
{
    dl_backend *from = parent->device->side.backend;
    dl_backend *to = NULL;

    if (from == NULL) {
        return DL_OK;
    }
    DL_TRY(dl_group_admit(parent));
    if (child != NULL && child->device != NULL
        && child->device->side.kind == parent->device->side.kind) {
        DL_TRY(open_device_backend(child, deadline));
        to = child->device->side.backend;
    }
    return from->ops->split(from, wanted, deadline, to);
}

/* Of a rank that the parent does not have. */
static dl_status
join_parent(const dl_device_split_args *wanted, dl_deadline deadline, dl_group *child)
{
    DL_TRY(open_device_backend(child, deadline));
    dl_backend *to = child->device->side.backend;
    return to->ops->split(NULL, wanted, deadline, to);
}

static dl_status
find_ways(dl_group *group, dl_deadline deadline, int *ways)
{
    if (group->device == NULL) {
        return DL_OK;
    }
    DL_TRY(dl_group_admit(group));
    DL_TRY(take_turn(group, deadline));
    dl_status status = open_device_backend(group, deadline);
    if (status == DL_OK) {
        dl_backend *backend = group->device->side.backend;
        status = backend->ops->ways(backend, deadline, ways);
    }
    pass_turn(group);
    return status;
}

dl_status
dl_device_ways(dl_group *group, dl_deadline deadline, int *ways)
{
    *ways = 0;
    dl_status status = find_ways(group, deadline, ways);
    if (status != DL_OK) {
        *ways = 0;
    }
    return status == DL_INTERRUPTED ? status : DL_OK;
}

/* A parent without a backend for devices has nothing to split. */
dl_status
dl_device_split(dl_group *parent, const dl_device_split_args *wanted,
                dl_deadline deadline, dl_group *child)
{
    if (parent == NULL) {
        return join_parent(wanted, deadline, child);
    }
    if (parent->device == NULL) {
        return DL_OK;
    }
    DL_TRY(dl_group_admit(parent));
    DL_TRY(take_turn(parent, deadline));
    dl_status status = split_backend(parent, wanted, deadline, child);
    pass_turn(parent);
    return status;
}

void
dl_device_free(dl_group *group)
{
    dl_device_side *self = group->device;

    if (!dl_group_is_inherited(group)) {
        dl_pinned_free(group->pinned);
    }
    if (self != NULL) {
        dl_side_fini(&self->side, dl_group_is_inherited(group));
        clear_batch(self);
        free(self);
    }
}
