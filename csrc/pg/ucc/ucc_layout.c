/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_layout.h"

#include <stdlib.h>

#include "tensor/strided.h"

dl_status
dl_ucc_memory_on_device(dl_ucc_memory *memory, int device)
{
    const dl_cuda_table *cuda;
    void *stream;

    DL_TRY(dl_cuda_load(&cuda));
    DL_TRY(dl_cuda_check(cuda,
                         cuda->stream_create(&stream, DL_CUDA_STREAM_NON_BLOCKING, 0),
                         "cudaStreamCreateWithPriority"));
    *memory = (dl_ucc_memory){DL_UCC_CUDA, cuda, device, stream};
    return DL_OK;
}

void
dl_ucc_memory_fini(dl_ucc_memory *memory)
{
    if (memory->cuda != NULL) {
        memory->cuda->stream_destroy(memory->stream);
    }
}

static dl_status
allocate(const dl_ucc_memory *memory, size_t size, void **data)
{
    if (memory->cuda != NULL) {
        return dl_cuda_check(memory->cuda, memory->cuda->memory_new(data, size),
                             "cudaMalloc");
    }
    *data = malloc(size);
    return *data == NULL ? dl_fail_no_memory() : DL_OK;
}

/* Allocates at least one byte, so that a row always has an address. */
dl_status
dl_ucc_row_reserve(const dl_ucc_memory *memory, dl_ucc_row *row, size_t size)
{
    size_t capacity = size < 2 * row->capacity ? 2 * row->capacity : size + 1;

    if (size < row->capacity) {
        return DL_OK;
    }
    dl_ucc_row_fini(memory, row);
    DL_TRY(allocate(memory, capacity, &row->data));
    row->capacity = capacity;
    return DL_OK;
}

void
dl_ucc_row_fini(const dl_ucc_memory *memory, dl_ucc_row *row)
{
    if (memory->cuda == NULL) {
        free(row->data);
    } else if (row->data != NULL) {
        memory->cuda->memory_free(row->data);
    }
    *row = (dl_ucc_row){0};
}

static dl_status
copy_there(const dl_ucc_memory *memory, void *target, const void *source, size_t size)
{
    const dl_cuda_table *cuda = memory->cuda;

    return size == 0 ? DL_OK
                     : dl_cuda_check(cuda,
                                     cuda->copy(target, source, size, DL_CUDA_ON_DEVICE,
                                                memory->stream),
                                     "cudaMemcpyAsync");
}

static dl_status
copy_in(const dl_ucc_memory *memory, void *target, const dl_tensor *source)
{
    if (memory->cuda != NULL) {
        return copy_there(memory, target, source->data, dl_tensor_size(source));
    }
    dl_strided_gather_part(target, source, 0, dl_tensor_size(source));
    return DL_OK;
}

dl_status
dl_ucc_copy_out(const dl_ucc_memory *memory, const dl_tensor *target,
                const void *source)
{
    if (memory->cuda != NULL) {
        return copy_there(memory, target->data, source, dl_tensor_size(target));
    }
    dl_strided_scatter_part(target, source, 0, dl_tensor_size(target));
    return DL_OK;
}

dl_status
dl_ucc_memory_synchronize(const dl_ucc_memory *memory)
{
    return memory->cuda == NULL
               ? DL_OK
               : dl_cuda_check(memory->cuda,
                               memory->cuda->stream_synchronize(memory->stream),
                               "cudaStreamSynchronize");
}

/* Blocks without elements have no place in memory and are ignored. */
static bool
is_in_a_row(const dl_ucc_layout *self)
{
    const char *first = NULL;

    for (int i = 0; i < self->count; i++) {
        const dl_tensor *block = &self->blocks[i];
        if (block->count == 0) {
            continue;
        }
        if (first == NULL) {
            first = (const char *)block->data - self->offsets[i];
        }
        if (!block->is_contiguous
            || (const char *)block->data != first + self->offsets[i]) {
            return false;
        }
    }
    return true;
}

static void *
start_of(const dl_ucc_layout *self)
{
    for (int i = 0; i < self->count; i++) {
        if (self->blocks[i].count > 0) {
            return (char *)self->blocks[i].data - self->offsets[i];
        }
    }
    return NULL;
}

void
dl_ucc_layout_init(dl_ucc_layout *layout, const dl_ucc_memory *memory,
                   const dl_tensor *blocks, int count, uint64_t *lengths)
{
    *layout = (dl_ucc_layout){
        .memory = memory,
        .blocks = blocks,
        .count = count,
        .counts = lengths,
        .offsets = lengths + count,
    };
    for (int i = 0; i < count; i++) {
        layout->counts[i] = dl_tensor_size(&blocks[i]);
        layout->offsets[i] = layout->size;
        layout->size += layout->counts[i];
    }
}

bool
dl_ucc_layout_is_even(const dl_ucc_layout *layout)
{
    for (int i = 1; i < layout->count; i++) {
        if (layout->counts[i] != layout->counts[0]) {
            return false;
        }
    }
    return true;
}

static dl_status
place(dl_ucc_layout *self, dl_ucc_row *row, bool must_copy)
{
    self->is_packed = must_copy || !is_in_a_row(self);
    if (!self->is_packed) {
        self->data = start_of(self);
        return DL_OK;
    }
    DL_TRY(dl_ucc_row_reserve(self->memory, row, self->size));
    self->data = row->data;
    return DL_OK;
}

dl_status
dl_ucc_layout_read(dl_ucc_layout *layout, dl_ucc_row *row, bool must_copy)
{
    DL_TRY(place(layout, row, must_copy));
    for (int i = 0; layout->is_packed && i < layout->count; i++) {
        DL_TRY(copy_in(layout->memory, (char *)layout->data + layout->offsets[i],
                       &layout->blocks[i]));
    }
    return layout->is_packed ? dl_ucc_memory_synchronize(layout->memory) : DL_OK;
}

dl_status
dl_ucc_layout_write(dl_ucc_layout *layout, dl_ucc_row *row)
{
    return place(layout, row, false);
}

dl_status
dl_ucc_layout_unpack(const dl_ucc_layout *layout)
{
    for (int i = 0; layout->is_packed && i < layout->count; i++) {
        DL_TRY(dl_ucc_copy_out(layout->memory, &layout->blocks[i],
                               (const char *)layout->data + layout->offsets[i]));
    }
    return layout->is_packed ? dl_ucc_memory_synchronize(layout->memory) : DL_OK;
}

dl_ucc_side
dl_ucc_layout_whole(const dl_ucc_layout *layout)
{
    return (dl_ucc_side){
        .one = {layout->data, layout->size, DL_UCC_UINT8, layout->memory->kind},
    };
}

dl_ucc_side
dl_ucc_layout_parts(const dl_ucc_layout *layout)
{
    return (dl_ucc_side){
        .many = {layout->data, layout->counts, layout->offsets, DL_UCC_UINT8,
                 layout->memory->kind},
    };
}
