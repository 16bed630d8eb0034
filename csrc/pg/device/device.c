/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/device/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/interrupt.h"
#include "base/call_site.h"
#include "base/log.h"
#include "base/thread.h"
#include "pg/device/cuda_table.h"
#include "pg/device/device_state.h"
#include "pg/group_state.h"
#include "pg/nccl/nccl_backend.h"
#include "pg/ucc/ucc_device_backend.h"
#include "pg/wrapper/wrapper_device_backend.h"

/* Only the backends' own headers declare their constructors, as on the CPU side. */
static const struct {
    const char *name;
    dl_device_backend_new_fn make;
} backends[] = {
    {"nccl", dl_nccl_backend_new},
    {"ucc", dl_ucc_device_backend_new},
};

/* The records of one call, completed when its work ends. */
typedef struct ending {
    dl_work_notice notice;
    const dl_work *work;
    size_t count;
    dl_record *records[];
} ending;

/* Its address identifies the thread that has a batch open. */
static _Thread_local char own;

dl_status
dl_device_serve(dl_group *group, const char *name, const dl_device_options *options)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        if (strcmp(backends[i].name, name) != 0) {
            continue;
        }
        dl_device_side *made = calloc(1, sizeof *made);
        if (made == NULL) {
            return dl_fail_no_memory();
        }
        made->name = backends[i].name;
        made->make = backends[i].make;
        made->options = *options;
        made->is_detailed = dl_debug_level_get() == DL_DEBUG_DETAIL;
        dl_recorder_join(&made->seat, group->name, made->name, group->rank,
                         group->size);
        dl_lane_init(&made->lane);
        group->device = made;
        return DL_OK;
    }
    return dl_fail(DL_INVALID, "there is no backend \"%s\" for arrays on devices",
                   name);
}

const char *
dl_device_name(const dl_group *group)
{
    return group->device == NULL ? NULL : group->device->name;
}

bool
dl_device_takes(const dl_group *group, const dl_call *call)
{
    dl_arrays arrays = dl_call_arrays(call, group->size);
    const dl_tensor *tensor;

    for (int i = 0; (tensor = dl_arrays_at(&arrays, i)) != NULL; i++) {
        if (tensor->device == DL_CUDA) {
            return true;
        }
    }
    return false;
}

dl_status
dl_device_check(const dl_group *group, const dl_tensor *tensor, const char *name)
{
    if (group->is_on_device) {
        return DL_OK;
    }
    if (group->device == NULL) {
        return dl_fail(DL_UNSUPPORTED,
                       "%s: the array is on cuda:%d, but group %s, created with "
                       "backend \"%s\", has no backend for that device; create the "
                       "group with backend=\"nccl\" or \"cpu:gloo,cuda:nccl\"",
                       name, tensor->device_index, group->name, group->backend_name);
    }
    if (!tensor->is_contiguous) {
        return dl_fail(DL_INVALID,
                       "%s: the array on cuda:%d is not contiguous; the %s backend "
                       "needs a C-contiguous array: pass a contiguous copy",
                       name, tensor->device_index, group->device->name);
    }
    return DL_OK;
}

/* Checks that all arrays are on one device.  The device backend would use the address
 * of an array in host memory as a device address. */
static dl_status
check_item(const dl_group *group, const dl_device_item *item)
{
    dl_arrays arrays = dl_call_arrays(item->call, group->size);
    const dl_tensor *first = dl_arrays_at(&arrays, 0);
    const dl_tensor *tensor;

    for (int i = 1; (tensor = dl_arrays_at(&arrays, i)) != NULL; i++) {
        if (tensor->device != first->device
            || tensor->device_index != first->device_index) {
            return dl_fail(DL_INVALID, "%s: the arrays are not all on one device",
                           dl_op_type_name((uint8_t)item->call->op));
        }
    }
    return DL_OK;
}

/* Only the group's CPU side knows which ranks are gone. */
static dl_status
watch(void *context, int rank)
{
    return dl_group_watch(context, rank);
}

static dl_status
lost(void *context, int rank)
{
    return dl_group_lost(context, rank);
}

static dl_status
make_backend(dl_group *group, dl_device_backend **backend)
{
    dl_device_side *self = group->device;
    dl_device_backend_options options = {
        .store = group->store,
        .rank = group->rank,
        .size = group->size,
        .group_name = group->name,
        .options = &self->options,
        .watch = watch,
        .lost = lost,
        .context = group,
    };

    DL_TRY(self->make(&options, backend));
    dl_status status =
        self->is_detailed ? dl_wrapper_device_backend_wrap(&options, backend) : DL_OK;
    if (status != DL_OK) {
        (*backend)->ops->free(*backend);
    }
    return status;
}

/* Returns the backend, which is made if necessary.  Called with the turn held; the lock
 * is for threads that abort meanwhile. */
static dl_status
find_backend(dl_group *group, dl_device_backend **backend)
{
    dl_device_side *self = group->device;
    dl_device_backend *made;

    DL_TRY(dl_group_admit(group));
    if (self->backend == NULL) {
        DL_TRY(make_backend(group, &made));
        pthread_mutex_lock(&group->lock);
        self->backend = made;
        pthread_mutex_unlock(&group->lock);
    }
    *backend = self->backend;
    return DL_OK;
}

/* Threads begin their operations one after the other.  That all ranks begin them in the
 * same order is up to the caller. */
static dl_status
take_turn(dl_group *group, dl_deadline deadline)
{
    dl_status status = dl_lane_take(&group->device->lane, deadline);

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
    dl_lane_pass(&group->device->lane);
    dl_device_free_if_closed(group);
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

static dl_record *
post(const dl_device_side *self, const dl_device_item *item, dl_deadline deadline)
{
    const dl_call *message = item->call;

    return dl_recorder_post(&self->seat, &item->fingerprint, message->tag, deadline);
}

/* Records an item that is queued in a batch, with its call site if ranks compare
 * calls. */
static dl_status
record_queued(dl_device_side *self, dl_device_item *item, dl_deadline deadline)
{
    char site[DL_CALL_SITE_TEXT_SIZE];

    item->call_site = NULL;
    item->record = dl_op_type_is_message((uint8_t)item->call->op)
                       ? post(self, item, deadline)
                       : dl_recorder_queue(&self->seat, &item->fingerprint, deadline);
    if (!self->is_detailed) {
        return DL_OK;
    }
    /* Noted now, because the thread is elsewhere when the batch is issued. */
    dl_call_site_describe(site, sizeof site);
    item->call_site = strdup(site);
    return item->call_site == NULL ? dl_fail_no_memory() : DL_OK;
}

/* Completes the record of an item that is still in its batch, and so never began. */
static void
forget_record(dl_device_item *item)
{
    dl_recorder_end(item->record, DL_CANCELLED);
    item->record = NULL;
    free(item->call_site);
    item->call_site = NULL;
}

/* Numbers the items and records that they begin.  Called with the turn held. */
static void
record_start(dl_device_side *self, dl_device_item *items, const dl_device_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        dl_device_item *item = &items[i];
        if (!dl_op_type_is_message((uint8_t)item->call->op)) {
            item->sequence = ++self->sequence;
            item->record =
                dl_recorder_start(&self->seat, item->record, &item->fingerprint,
                                  item->sequence, call->deadline);
        } else if (item->record == NULL) {
            item->record = post(self, item, call->deadline);
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
ending_new(const dl_device_item *items, size_t count, const dl_work *work)
{
    ending *self = malloc(sizeof *self + count * sizeof *self->records);

    if (self != NULL) {
        *self = (ending){.notice.call = end_all, .work = work, .count = count};
        for (size_t i = 0; i < count; i++) {
            self->records[i] = items[i].record;
        }
    }
    return self;
}

/* Records failures; items that have begun are completed by the end of `work`.  Without
 * memory the records end now, which is better than operations that seem
 * to run forever. */
static void
record_end(dl_device_item *items, size_t count, dl_status status, dl_work *work)
{
    ending *made = status == DL_OK ? ending_new(items, count, work) : NULL;

    if (made != NULL) {
        dl_work_notify(work, &made->notice);
    }
    for (size_t i = 0; i < count; i++) {
        if (made == NULL) {
            dl_recorder_end(items[i].record, status);
        }
        items[i].record = NULL;
    }
}

/* Begins the items of `call`, whose member `items` need not be set.  Called with the
 * turn held. */
static dl_status
enqueue(dl_group *group, dl_device_item *items, dl_device_call call, dl_work **work)
{
    dl_device_backend *backend;

    DL_TRY(find_backend(group, &backend));
    call.items = items;
    record_start(group->device, items, &call);
    dl_status status = note_failure(group, backend->ops->enqueue(backend, &call, work));
    record_end(items, call.count, status, *work);
    return status;
}

bool
dl_device_is_batching(const dl_group *group)
{
    const dl_device_side *self = group->device;

    return self != NULL
           && atomic_load_explicit(&self->batcher, memory_order_relaxed) == &own;
}

static void
drop(dl_device_item *item)
{
    forget_record(item);
    free((void *)(uintptr_t)item->call);
}

/* The arguments are copied, since lists of blocks live on the caller's stack.  The
 * elements stay in the arrays, which the caller keeps. */
static dl_status
add_to_batch(dl_group *group, const dl_device_item *item, dl_deadline deadline)
{
    dl_device_side *self = group->device;
    dl_call *copy;

    if (self->batch_count == self->batch_capacity) {
        size_t capacity = self->batch_capacity * 2 + 8;
        dl_device_item *batch = realloc(self->batch, capacity * sizeof *batch);
        if (batch == NULL) {
            return dl_fail_no_memory();
        }
        self->batch = batch;
        self->batch_capacity = capacity;
    }
    DL_TRY(dl_call_copy(item->call, group->size, (dl_room){0}, &copy));
    dl_device_item *added = &self->batch[self->batch_count];
    *added = *item;
    added->call = copy;
    dl_status status = record_queued(self, added, deadline);
    if (status != DL_OK) {
        drop(added);
        return status;
    }
    self->batch_count++;
    return DL_OK;
}

static void
clear_batch(dl_device_side *self)
{
    for (size_t i = 0; i < self->batch_count; i++) {
        drop(&self->batch[i]);
    }
    free(self->batch);
    self->batch = NULL;
    self->batch_count = 0;
    self->batch_capacity = 0;
}

dl_status
dl_device_submit(dl_group *group, const dl_device_item *item, dl_deadline deadline,
                 dl_work **work)
{
    dl_device_call call = {.count = 1, .deadline = deadline};
    dl_device_item own = *item;

    DL_TRY(dl_group_admit(group));
    DL_TRY(check_item(group, item));
    if (dl_device_is_batching(group)) {
        *work = NULL;
        return add_to_batch(group, item, deadline);
    }
    DL_TRY(take_turn(group, deadline));
    *work = NULL;
    dl_status status = enqueue(group, &own, call, work);
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

/* Checks that all items are on one device, since one stream carries them. */
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
        dl_device_call call = {
            .count = self->batch_count, .is_batch = true, .deadline = deadline};
        status = check_devices(group);
        if (status == DL_OK) {
            status = enqueue(group, self->batch, call, work);
        }
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
    const char *value = getenv("TORCH_NCCL_BLOCKING_WAIT");

    value = value == NULL ? getenv("NCCL_BLOCKING_WAIT") : value;
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

/* Waits for a work that ends on the host.  An interrupted wait aborts the operation and
 * then waits until it has ended, because the caller owns the array again on return. */
static dl_status
wait_here(dl_group *group, dl_work *work)
{
    dl_status status = dl_work_wait(work, dl_deadline_after(-1));

    if (dl_work_is_done(work)) {
        return status;
    }
    dl_error error = *dl_last_error();
    dl_error cause = lasting_cause(group);
    pthread_mutex_lock(&group->lock);
    dl_device_abort_locked(group, &cause, false);
    pthread_mutex_unlock(&group->lock);
    while (!dl_work_is_done(work)) {
        nanosleep(&(struct timespec){.tv_nsec = DL_MILLISECOND}, NULL);
    }
    return dl_fail_again(&error);
}

/* Orders the arrays' streams after the work, or waits for it on the host. */
static dl_status
finish(dl_group *group, dl_work *work)
{
    if (!dl_work_is_on_device(work)) {
        return wait_here(group, work);
    }
    DL_TRY(dl_work_order_arrays(work));
    return dl_device_blocks() ? dl_work_wait(work, dl_deadline_after(-1)) : DL_OK;
}

dl_status
dl_device_run(dl_group *group, const dl_device_item *item, dl_deadline deadline)
{
    dl_work *work;

    /* All that follows may have to wait for other ranks. */
    dl_blocking_begin();
    DL_TRY(dl_device_submit(group, item, deadline, &work));
    if (work == NULL) {
        return DL_OK;
    }
    dl_status status = finish(group, work);
    dl_work_unref(work);
    return status;
}

/* For callers whose first operation should not pay for the meeting, or who want its
 * failure at once. */
dl_status
dl_device_connect(dl_group *group, int index, dl_deadline deadline)
{
    dl_device_backend *backend;

    DL_TRY(dl_group_admit(group));
    DL_TRY(take_turn(group, deadline));
    dl_status status = find_backend(group, &backend);
    if (status == DL_OK) {
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
    if (group->device->backend != NULL) {
        const dl_device_backend *inside =
            dl_wrapper_device_inside(group->device->backend);
        *device = inside->ops->device == NULL ? -1 : inside->ops->device(inside);
    }
    pass_turn(group);
    return DL_OK;
}

/* Reduces one byte, and waits for the end on the host. */
static dl_status
meet_on_device(dl_group *group, void *byte, void *stream, int device,
               dl_deadline deadline)
{
    dl_call call = {
        .op = DL_ALL_REDUCE,
        .tensor = {.data = byte,
                   .count = 1,
                   .item_size = 1,
                   .dtype = DL_UINT8,
                   .device = DL_CUDA,
                   .device_index = device,
                   .stream = stream,
                   .is_contiguous = true,
                   .is_writable = true},
        .reduction = DL_MAX,
    };
    dl_work *work;

    DL_TRY(dl_group_submit(group, &call, deadline, &work));
    dl_status status = dl_work_order_arrays(work);
    if (status == DL_OK) {
        status = dl_work_wait(work, dl_deadline_after(-1));
    }
    dl_work_unref(work);
    return status;
}

/* Waits until the stream has run what is left on it; that is soon, as the reduction
 * before it has ended.  A stream that is being captured runs nothing to wait for. */
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
split(dl_group *parent, const dl_device_split_args *wanted, dl_deadline deadline,
      dl_group *child)
{
    dl_device_backend *from;
    dl_device_backend *to = NULL;

    if (parent->device->backend == NULL) {
        return DL_OK;
    }
    DL_TRY(find_backend(parent, &from));
    if (child != NULL && child->device != NULL) {
        DL_TRY(find_backend(child, &to));
    }
    return from->ops->split(from, wanted, deadline,
                            to == NULL ? NULL : dl_wrapper_device_inside(to));
}

/* A parent without a backend for devices has nothing to split. */
dl_status
dl_device_split(dl_group *parent, const dl_device_split_args *wanted,
                dl_deadline deadline, dl_group *child)
{
    if (parent->device == NULL) {
        return DL_OK;
    }
    DL_TRY(dl_group_admit(parent));
    DL_TRY(take_turn(parent, deadline));
    dl_status status = split(parent, wanted, deadline, child);
    pass_turn(parent);
    return status;
}

/* An orderly end lets operations finish; an abort does not. */
void
dl_device_abort_locked(dl_group *group, const dl_error *cause, bool is_leaving)
{
    dl_device_backend *backend = group->device == NULL ? NULL : group->device->backend;

    if (group->device != NULL && is_leaving) {
        dl_recorder_leave(&group->device->seat);
    }
    if (backend != NULL && is_leaving) {
        backend->ops->leave(backend);
    } else if (backend != NULL) {
        backend->ops->abort(backend, cause);
    }
}

/* Like dl_group_free_backend_if_closed(): the closing thread frees the backend, or else
 * the thread that has the turn then. */
void
dl_device_free_if_closed(dl_group *group)
{
    dl_device_side *self = group->device;

    if (self == NULL || !atomic_load(&group->is_closed) || !dl_lane_try(&self->lane)) {
        return;
    }
    pthread_mutex_lock(&group->lock);
    dl_device_backend *backend = self->backend;
    self->backend = NULL;
    pthread_mutex_unlock(&group->lock);
    if (backend != NULL) {
        backend->ops->free(backend);
    }
    dl_lane_pass(&self->lane);
}

void
dl_device_free(dl_group *group)
{
    dl_device_side *self = group->device;

    if (self == NULL) {
        return;
    }
    if (self->backend != NULL) {
        self->backend->ops->free(self->backend);
    }
    clear_batch(self);
    dl_recorder_leave(&self->seat);
    if (dl_group_is_inherited(group)) {
        dl_lane_forget(&self->lane);
    } else {
        dl_lane_fini(&self->lane);
    }
    free(self);
}
