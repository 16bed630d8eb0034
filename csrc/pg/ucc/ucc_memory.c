/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_memory.h"

#include <stdlib.h>

#include "pg/ucc/ucc_numbers.h"
#include "tensor/strided.h"

dl_status
dl_ucc_memory_on_device(dl_ucc_memory *memory)
{
    const dl_cuda_table *cuda;
    void *stream;

    DL_TRY(dl_cuda_load(&cuda));
    DL_TRY(dl_cuda_check(cuda,
                         cuda->stream_create(&stream, DL_CUDA_STREAM_NON_BLOCKING, 0),
                         "cudaStreamCreateWithPriority"));
    *memory = (dl_ucc_memory){DL_UCC_CUDA, cuda, stream};
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

dl_status
dl_ucc_copy_in(const dl_ucc_memory *memory, void *target, const dl_tensor *source)
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
dl_ucc_memory_settle(const dl_ucc_memory *memory)
{
    return memory->cuda == NULL
               ? DL_OK
               : dl_cuda_check(memory->cuda,
                               memory->cuda->stream_settle(memory->stream),
                               "cudaStreamSynchronize");
}
