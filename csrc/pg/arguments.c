/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/arguments.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE SIZE_MAX

/* The offsets of the tensors in an operation's struct. */
typedef struct layout {
    size_t size;
    size_t tensor; /* NOWHERE if there is none, here and below */
    size_t inputs;
    size_t outputs;
} layout;

/* Barriers have no arrays, and the cards of objects are bytes of the library itself. */
static const layout without_arrays = {0, NOWHERE, NOWHERE, NOWHERE};

static const layout layouts[DL_OP_TYPE_COUNT] = {
    [DL_ALL_REDUCE] = {sizeof(dl_all_reduce_args), offsetof(dl_all_reduce_args, tensor),
                       NOWHERE, NOWHERE},
    [DL_BROADCAST] = {sizeof(dl_broadcast_args), offsetof(dl_broadcast_args, tensor),
                      NOWHERE, NOWHERE},
    [DL_REDUCE] = {sizeof(dl_reduce_args), offsetof(dl_reduce_args, tensor), NOWHERE,
                   NOWHERE},
    [DL_ALL_GATHER] = {sizeof(dl_all_gather_args), offsetof(dl_all_gather_args, input),
                       NOWHERE, offsetof(dl_all_gather_args, outputs)},
    [DL_GATHER] = {sizeof(dl_gather_args), offsetof(dl_gather_args, input), NOWHERE,
                   offsetof(dl_gather_args, outputs)},
    [DL_SCATTER] = {sizeof(dl_scatter_args), offsetof(dl_scatter_args, output),
                    offsetof(dl_scatter_args, inputs), NOWHERE},
    [DL_REDUCE_SCATTER] = {sizeof(dl_reduce_scatter_args),
                           offsetof(dl_reduce_scatter_args, output),
                           offsetof(dl_reduce_scatter_args, inputs), NOWHERE},
    [DL_ALL_TO_ALL] = {sizeof(dl_all_to_all_args), NOWHERE,
                       offsetof(dl_all_to_all_args, inputs),
                       offsetof(dl_all_to_all_args, outputs)},
    [DL_SCAN] = {sizeof(dl_scan_args), offsetof(dl_scan_args, tensor), NOWHERE,
                 NOWHERE},
    [DL_EXSCAN] = {sizeof(dl_scan_args), offsetof(dl_scan_args, tensor), NOWHERE,
                   NOWHERE},
    [DL_SEND] = {sizeof(dl_message_args), offsetof(dl_message_args, tensor), NOWHERE,
                 NOWHERE},
    [DL_RECV] = {sizeof(dl_message_args), offsetof(dl_message_args, tensor), NOWHERE,
                 NOWHERE},
    [DL_RECV_ANY] = {sizeof(dl_message_args), offsetof(dl_message_args, tensor),
                     NOWHERE, NOWHERE},
};

static const layout *
layout_of(dl_op_type op)
{
    return layouts[op].size == 0 ? &without_arrays : &layouts[op];
}

static dl_tensor *
tensor_at(void *args, size_t offset)
{
    return offset == NOWHERE ? NULL : (dl_tensor *)(void *)((char *)args + offset);
}

const dl_reducer *
dl_arguments_reducer(dl_op_type op, const void *args)
{
    switch (op) {
    case DL_ALL_REDUCE:
        return ((const dl_all_reduce_args *)args)->reducer;
    case DL_REDUCE:
        return ((const dl_reduce_args *)args)->reducer;
    case DL_SCAN:
    case DL_EXSCAN:
        return ((const dl_scan_args *)args)->reducer;
    case DL_REDUCE_SCATTER:
        return ((const dl_reduce_scatter_args *)args)->reducer;
    default:
        return NULL;
    }
}

size_t
dl_arguments_bytes(dl_op_type op, const void *args)
{
    const layout *layout = layout_of(op);

    if (layout->size == 0) {
        return 0;
    }
    if (layout->tensor == NOWHERE) {
        return SIZE_MAX;
    }
    const dl_tensor *tensor =
        (const dl_tensor *)(const void *)((const char *)args + layout->tensor);
    return tensor->device == DL_CPU ? dl_tensor_size(tensor) : SIZE_MAX;
}

static const dl_tensor **
list_at(void *args, size_t offset)
{
    return offset == NOWHERE ? NULL
                             : (const dl_tensor **)(void *)((char *)args + offset);
}

/* Copies what fits into the room, and sums up what everything needs. */
typedef struct copier {
    char *memory;
    size_t room;
    size_t used;
} copier;

static void *
place(copier *self, const void *source, size_t size)
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
        tensor->shape == NULL ? NULL : place(self, tensor->shape, size);
    const int64_t *strides =
        tensor->strides == NULL ? NULL : place(self, tensor->strides, size);
    if (copy != NULL) {
        copy->shape = shape;
        copy->strides = strides;
    }
}

static void
place_list(copier *self, const dl_tensor **target, const dl_tensor *const *source,
           int count)
{
    if (source == NULL || *source == NULL) {
        return;
    }
    dl_tensor *copies = place(self, *source, (size_t)count * sizeof **source);
    for (int i = 0; i < count; i++) {
        place_shape(self, copies == NULL ? NULL : &copies[i], &(*source)[i]);
    }
    if (target != NULL) {
        *target = copies;
    }
}

static void *
place_all(copier *self, dl_op_type op, void *args, int count)
{
    const layout *layout = layout_of(op);
    void *copy = place(self, args, layout->size);
    dl_tensor *tensor = tensor_at(args, layout->tensor);

    if (tensor != NULL) {
        place_shape(self, copy == NULL ? NULL : tensor_at(copy, layout->tensor),
                    tensor);
    }
    place_list(self, copy == NULL ? NULL : list_at(copy, layout->inputs),
               list_at(args, layout->inputs), count);
    place_list(self, copy == NULL ? NULL : list_at(copy, layout->outputs),
               list_at(args, layout->outputs), count);
    return copy;
}

dl_status
dl_arguments_copy(dl_op_type op, const void *args, int group_size, dl_room near,
                  void **copy)
{
    copier self = {.memory = near.memory, .room = near.size};
    /* The cast drops const for the accessors; the struct is only read. */
    void *source = (void *)(uintptr_t)args;

    *copy = NULL;
    if (args == NULL) {
        return DL_OK;
    }
    *copy = place_all(&self, op, source, group_size);
    if (self.used <= self.room) {
        return DL_OK;
    }
    self = (copier){.memory = malloc(self.used), .room = self.used};
    if (self.memory == NULL) {
        return dl_fail_no_memory();
    }
    *copy = place_all(&self, op, source, group_size);
    return DL_OK;
}

dl_arrays
dl_arguments_arrays(dl_op_type op, const void *args, int group_size)
{
    const layout *layout = layout_of(op);
    /* The cast drops const for the accessors; the struct is only read. */
    void *source = (void *)(uintptr_t)args;
    dl_arrays arrays = {.list_count = group_size};

    if (args == NULL) {
        return arrays;
    }
    arrays.single = tensor_at(source, layout->tensor);
    if (layout->inputs != NOWHERE) {
        arrays.inputs = *list_at(source, layout->inputs);
    }
    if (layout->outputs != NOWHERE) {
        arrays.outputs = *list_at(source, layout->outputs);
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
