/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/device/staging.h"

#include <stdint.h>
#include <stdlib.h>

#include "pg/device/pinned.h"
#include "pg/group_state.h"

/* Arrays begin at multiples of this, as those of most libraries do. */
#define ALIGNMENT ((size_t)64)

/* Whether an operation reads a call's single array on this rank, and writes it. */
typedef struct use {
    bool is_read;
    bool is_written;
} use;

static use
use_of_single(const dl_group *group, const dl_call *call)
{
    bool is_root = dl_group_rank(group) == call->root;

    switch (call->op) {
    case DL_BROADCAST:
        return (use){is_root, !is_root};
    case DL_REDUCE:
        return (use){true, is_root};
    case DL_EXSCAN:
        return (use){true, dl_group_rank(group) > 0};
    case DL_ALL_GATHER:
    case DL_GATHER:
        return (use){true, false};
    case DL_SCATTER:
    case DL_REDUCE_SCATTER:
        return (use){false, true};
    default:
        return (use){true, true};
    }
}

/* Inputs come before outputs. */
static use
use_of(const dl_group *group, const dl_call *call, const dl_arrays *arrays, int index)
{
    int singles = arrays->single == NULL ? 0 : 1;
    int inputs = arrays->inputs == NULL ? 0 : arrays->list_count;

    if (index < singles) {
        return use_of_single(group, call);
    }
    bool is_input = index < singles + inputs;
    return (use){is_input, !is_input};
}

static bool
is_behind(const dl_tensor *tensor, const dl_tensor *previous)
{
    return previous != NULL
           && (const char *)previous->data + dl_tensor_size(previous)
                  == (const char *)tensor->data;
}

/* Sets the staged arrays' addresses, counted from `memory`, and `*size` to the bytes
 * that all of them take.  Arrays that are adjacent on the device, such as the blocks of
 * one array, are adjacent on the host as well. */
static void
place_arrays(const dl_arrays *arrays, const dl_arrays *staged, uintptr_t memory,
             size_t *size)
{
    const dl_tensor *previous = NULL;
    const dl_tensor *tensor;
    size_t end = 0;

    for (int i = 0; (tensor = dl_arrays_at(arrays, i)) != NULL; i++) {
        if (!is_behind(tensor, previous)) {
            end = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
        /* The staged call is a copy that belongs to this operation. */
        dl_tensor *made = (dl_tensor *)(uintptr_t)dl_arrays_at(staged, i);
        made->data = (void *)(memory + end);
        made->device = DL_CPU;
        made->device_index = 0;
        made->stream = NULL;
        made->is_writable = true;
        end += dl_tensor_size(tensor);
        previous = tensor;
    }
    *size = end;
}

static dl_status
copy_run(const dl_staging *self, char *device, char *host, size_t size, bool is_back)
{
    const dl_pinned *buffer = self->group->pinned;
    const dl_cuda_table *cuda = buffer->cuda;

    if (size == 0) {
        return DL_OK;
    }
    return dl_cuda_check(
        cuda,
        is_back ? cuda->copy(device, host, size, DL_CUDA_TO_DEVICE, buffer->stream)
                : cuda->copy(host, device, size, DL_CUDA_TO_HOST, buffer->stream),
        "cudaMemcpyAsync");
}

/* Copies the arrays that the operation reads, or writes if `is_back`.  Arrays that are
 * adjacent on both sides are copied at once. */
static dl_status
copy_all(const dl_staging *self, bool is_back)
{
    int group_size = dl_group_size(self->group);
    dl_arrays arrays = dl_call_arrays(self->call, group_size);
    dl_arrays staged = dl_call_arrays(self->staged, group_size);
    char *device = NULL, *host = NULL;
    const dl_tensor *tensor;
    size_t run = 0;

    for (int i = 0; (tensor = dl_arrays_at(&arrays, i)) != NULL; i++) {
        use use = use_of(self->group, self->call, &arrays, i);
        const dl_tensor *other = dl_arrays_at(&staged, i);
        if (!(is_back ? use.is_written : use.is_read)) {
            continue;
        }
        if ((char *)tensor->data != device + run || (char *)other->data != host + run) {
            DL_TRY(copy_run(self, device, host, run, is_back));
            device = tensor->data;
            host = other->data;
            run = 0;
        }
        run += dl_tensor_size(tensor);
    }
    DL_TRY(copy_run(self, device, host, run, is_back));
    const dl_pinned *buffer = self->group->pinned;
    return dl_cuda_check(buffer->cuda, buffer->cuda->stream_synchronize(buffer->stream),
                         "cudaStreamSynchronize");
}

/* Adds the operation, the rank and the direction of the copy to an error. */
static dl_status
add_context(const dl_staging *self, dl_status status, bool is_back)
{
    if (status == DL_OK) {
        return DL_OK;
    }
    char *label = dl_label_new(dl_group_name(self->group), dl_group_rank(self->group),
                               dl_group_size(self->group));
    dl_fail_while("%s in %s: copying arrays %s",
                  dl_op_type_name((uint8_t)self->call->op),
                  label == NULL ? dl_group_name(self->group) : label,
                  is_back ? "back to the device" : "to the CPU's memory");
    free(label);
    return status;
}

static dl_status
take_buffer(dl_staging *self, const dl_cuda_table *cuda)
{
    int group_size = dl_group_size(self->group);
    dl_arrays arrays = dl_call_arrays(self->call, group_size);
    dl_arrays staged = dl_call_arrays(self->staged, group_size);
    int device = dl_arrays_at(&arrays, 0)->device_index;
    size_t size;

    place_arrays(&arrays, &staged, 0, &size);
    DL_TRY(dl_pinned_reserve(cuda, device, size, &self->group->pinned));
    place_arrays(&arrays, &staged, (uintptr_t)self->group->pinned->memory, &size);
    return copy_all(self, false);
}

dl_status
dl_staging_init(dl_staging *staging, dl_group *group, const dl_call *call,
                const dl_cuda_table *cuda)
{
    *staging = (dl_staging){.group = group, .call = call};
    DL_TRY(dl_call_copy(call, dl_group_size(group), (dl_room){0}, &staging->staged));
    dl_status status = add_context(staging, take_buffer(staging, cuda), false);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        dl_staging_fini(staging, false);
        return dl_rethrow(&error);
    }
    return DL_OK;
}

dl_status
dl_staging_copy_back(const dl_staging *staging)
{
    return add_context(staging, copy_all(staging, true), true);
}

void
dl_staging_fini(dl_staging *staging, bool keeps_memory)
{
    dl_group *group = staging->group;
    bool is_large = group->pinned != NULL && group->pinned->size > DL_PINNED_LIMIT;

    if (is_large && !keeps_memory) {
        dl_pinned_free(group->pinned);
    }
    if (is_large || keeps_memory) {
        group->pinned = NULL;
    }
    free(staging->staged);
}
