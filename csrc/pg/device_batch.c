/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Batches of a group's side for devices: operations that one thread collects and that
 * are issued together. */
#include <stdlib.h>

#include "pg/device_state.h"
#include "pg/group_state.h"

/* Its address identifies the thread. */
static _Thread_local char own;

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
    dl_device_record_forget(item);
    free((void *)(uintptr_t)item->args);
}

/* The arguments are copied, since lists of blocks live on the caller's stack.  The
 * elements stay in the arrays, which the caller keeps. */
dl_status
dl_device_batch_add(dl_group *group, const dl_device_item *item, dl_deadline deadline)
{
    dl_device_side *self = group->device;
    void *copy;

    if (self->batch_count == self->batch_capacity) {
        size_t capacity = self->batch_capacity * 2 + 8;
        dl_device_item *batch = realloc(self->batch, capacity * sizeof *batch);
        if (batch == NULL) {
            return dl_fail_no_memory();
        }
        self->batch = batch;
        self->batch_capacity = capacity;
    }
    DL_TRY(dl_arguments_copy(item->op, item->args, group->size, (dl_room){0}, &copy));
    dl_device_item *added = &self->batch[self->batch_count];
    *added = *item;
    added->args = copy;
    dl_status status = dl_device_record_queue(self, added, deadline);
    if (status != DL_OK) {
        drop(added);
        return status;
    }
    self->batch_count++;
    return DL_OK;
}

void
dl_device_batch_clear(dl_device_side *self)
{
    for (size_t i = 0; i < self->batch_count; i++) {
        drop(&self->batch[i]);
    }
    free(self->batch);
    self->batch = NULL;
    self->batch_count = 0;
    self->batch_capacity = 0;
}

/* The turn is held until the batch ends: an operation that another thread
 * begins meanwhile must not come in between, or ranks would disagree on
 * what belongs together. */
dl_status
dl_device_batch_begin(dl_group *group, dl_deadline deadline)
{
    if (group->device == NULL) {
        return dl_fail(DL_UNSUPPORTED,
                       "group %s has no backend that sends operations out together",
                       group->name);
    }
    if (dl_device_is_batching(group)) {
        return dl_fail(DL_INVALID, "group %s has a batch open on this thread",
                       group->name);
    }
    DL_TRY(dl_group_admit(group));
    DL_TRY(dl_device_take_turn(group, deadline));
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
        dl_arrays arrays =
            dl_arguments_arrays(self->batch[i].op, self->batch[i].args, group->size);
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
            status = dl_device_enqueue(group, self->batch, call, work);
        }
    }
    dl_device_batch_clear(self);
    atomic_store_explicit(&self->batcher, NULL, memory_order_relaxed);
    dl_device_pass_turn(group);
    return status;
}
