/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/call.h"

#include <stdlib.h>
#include <string.h>

static bool
has_arrays(dl_op_type op)
{
    return op != DL_BARRIER && op != DL_WINDOW;
}

static bool
has_single(dl_op_type op)
{
    return has_arrays(op) && op != DL_ALL_TO_ALL;
}

dl_arrays
dl_call_arrays(const dl_call *call, int group_size)
{
    dl_arrays arrays = {.list_count = group_size};

    if (has_arrays(call->op)) {
        arrays.single = has_single(call->op) ? &call->tensor : NULL;
        arrays.inputs = call->inputs;
        arrays.outputs = call->outputs;
    }
    return arrays;
}

const dl_tensor *
dl_arrays_at(const dl_arrays *arrays, int index)
{
    if (arrays->single != NULL && index-- == 0) {
        return arrays->single;
    }
    if (arrays->inputs != NULL && index < arrays->list_count) {
        return &arrays->inputs[index];
    }
    index -= arrays->inputs == NULL ? 0 : arrays->list_count;
    return arrays->outputs != NULL && index < arrays->list_count
               ? &arrays->outputs[index]
               : NULL;
}

size_t
dl_call_bytes(const dl_call *call)
{
    if (!has_arrays(call->op)) {
        return 0;
    }
    return has_single(call->op) && call->tensor.device == DL_CPU
               ? dl_tensor_size(&call->tensor)
               : SIZE_MAX;
}

/* Copies what fits into the room, and sums up what everything needs. */
typedef struct copier {
    char *memory;
    size_t room;
    size_t used;
} copier;

static void *
copy_bytes(copier *self, const void *source, size_t size)
{
    size_t start = self->used;

    self->used += (size + 15) / 16 * 16;
    return self->used > self->room ? NULL : memcpy(self->memory + start, source, size);
}

/* Copies shape and strides, because they belong to the array, whose owner may reshape
 * it while the operation is pending. */
static void
place_shape(copier *self, dl_tensor *copy, const dl_tensor *tensor)
{
    size_t size = (size_t)tensor->ndim * sizeof *tensor->shape;

    if (size == 0) {
        return;
    }
    const int64_t *shape =
        tensor->shape == NULL ? NULL : copy_bytes(self, tensor->shape, size);
    const int64_t *strides =
        tensor->strides == NULL ? NULL : copy_bytes(self, tensor->strides, size);
    if (copy != NULL) {
        copy->shape = shape;
        copy->strides = strides;
    }
}

static const dl_tensor *
place_list(copier *self, const dl_tensor *list, int count)
{
    if (list == NULL) {
        return NULL;
    }
    dl_tensor *copies = copy_bytes(self, list, (size_t)count * sizeof *list);
    for (int i = 0; i < count; i++) {
        place_shape(self, copies == NULL ? NULL : &copies[i], &list[i]);
    }
    return copies;
}

static dl_call *
place_all(copier *self, const dl_call *call, int count)
{
    dl_call *copy = copy_bytes(self, call, sizeof *call);

    if (has_single(call->op)) {
        place_shape(self, copy == NULL ? NULL : &copy->tensor, &call->tensor);
    }
    const dl_tensor *inputs = place_list(self, call->inputs, count);
    const dl_tensor *outputs = place_list(self, call->outputs, count);
    if (copy != NULL) {
        copy->inputs = inputs;
        copy->outputs = outputs;
    }
    return copy;
}

dl_status
dl_call_copy(const dl_call *call, int group_size, dl_room near, dl_call **copy)
{
    copier self = {.memory = near.memory, .room = near.size};

    *copy = place_all(&self, call, group_size);
    if (self.used <= self.room) {
        return DL_OK;
    }
    self = (copier){.memory = malloc(self.used), .room = self.used};
    *copy = NULL;
    if (self.memory == NULL) {
        return dl_fail_no_memory();
    }
    *copy = place_all(&self, call, group_size);
    return DL_OK;
}
