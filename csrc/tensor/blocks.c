/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/blocks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static dl_status
check_rows(const dl_tensor *whole, const int64_t *rows, int count)
{
    int64_t left = whole->shape[0];

    for (int i = 0; i < count; i++) {
        if (rows[i] < 0 || rows[i] > left) {
            left = -1;
            break;
        }
        left -= rows[i];
    }
    return left == 0 ? DL_OK
                     : dl_fail(DL_INVALID,
                               "the block sizes do not add up to the array's first "
                               "dimension of %" PRId64,
                               whole->shape[0]);
}

static dl_status
check_blocks(const dl_tensor *whole, const int64_t *rows, int count)
{
    if (whole->ndim == 0) {
        return dl_fail(DL_INVALID, "an array without dimensions has no blocks");
    }
    if (rows != NULL) {
        return check_rows(whole, rows, count);
    }
    return whole->shape[0] % count == 0
               ? DL_OK
               : dl_fail(DL_INVALID,
                         "the array's first dimension of %" PRId64
                         " cannot be divided into %d blocks of equal size",
                         whole->shape[0], count);
}

static dl_status
allocate(dl_blocks *blocks, const dl_tensor *whole, int count)
{
    size_t dimensions = whole->is_contiguous ? 0 : (size_t)whole->ndim;

    *blocks = (dl_blocks){.tensors = blocks->few};
    if (count > DL_BLOCKS_INLINE) {
        blocks->tensors = malloc((size_t)count * sizeof *blocks->tensors);
    }
    if (dimensions > 0) {
        blocks->shapes = malloc((size_t)count * dimensions * sizeof *blocks->shapes);
    }
    if (blocks->tensors == NULL || (dimensions > 0 && blocks->shapes == NULL)) {
        dl_blocks_fini(blocks);
        return dl_fail_no_memory();
    }
    return DL_OK;
}

/* `start` and `rows` are entries of the first dimension. */
static dl_tensor
rows_from(const dl_tensor *whole, int64_t start, int64_t rows, int64_t *shape)
{
    size_t per_row = whole->shape[0] == 0 ? 0 : whole->count / (size_t)whole->shape[0];
    dl_tensor block = *whole;
    char *data = whole->data;

    block.count = per_row * (size_t)rows;
    if (whole->is_contiguous) {
        block.data = data + (size_t)start * per_row * whole->item_size;
        block.shape = NULL;
        block.strides = NULL;
        return block;
    }
    memcpy(shape, whole->shape, (size_t)whole->ndim * sizeof *shape);
    shape[0] = rows;
    block.shape = shape;
    block.data = rows == 0 ? data : data + start * whole->strides[0];
    return block;
}

dl_status
dl_blocks_cut(dl_blocks *blocks, const dl_tensor *whole, const int64_t *rows, int count)
{
    int64_t start = 0;

    DL_TRY(check_blocks(whole, rows, count));
    DL_TRY(allocate(blocks, whole, count));
    for (int i = 0; i < count; i++) {
        int64_t size = rows == NULL ? whole->shape[0] / count : rows[i];
        int64_t *shape =
            blocks->shapes == NULL ? NULL : blocks->shapes + i * whole->ndim;
        blocks->tensors[i] = rows_from(whole, start, size, shape);
        start += size;
    }
    return DL_OK;
}

void
dl_blocks_fini(dl_blocks *blocks)
{
    if (blocks->tensors != blocks->few) {
        free(blocks->tensors);
    }
    free(blocks->shapes);
    blocks->tensors = NULL;
    blocks->shapes = NULL;
}
