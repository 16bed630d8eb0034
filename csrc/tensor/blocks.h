/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Cuts an array along its first dimension into blocks that are views of it: collectives
 * over a single array pass them to those over lists. */
#ifndef DISTLITE_TENSOR_BLOCKS_H
#define DISTLITE_TENSOR_BLOCKS_H

#include "base/status.h"
#include "tensor/tensor.h"

/* Up to this number, contiguous blocks need no allocation. */
#define DL_BLOCKS_INLINE 8

typedef struct dl_blocks {
    dl_tensor *tensors;
    int64_t *shapes; /* of blocks that are not contiguous */
    dl_tensor few[DL_BLOCKS_INLINE];
} dl_blocks;

/* Cuts `whole` into `count` blocks.  Block i has rows[i] entries of the first
 * dimension; all blocks have the same number if `rows` is NULL.  DL_INVALID: the blocks
 * do not add up to the array.  The blocks borrow the array's memory and strides.
 * `blocks` must not be moved. */
dl_status dl_blocks_cut(dl_blocks *blocks, const dl_tensor *whole, const int64_t *rows,
                        int count);
void dl_blocks_fini(dl_blocks *blocks);

#endif
