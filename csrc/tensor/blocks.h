/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One array cut along its first dimension into blocks that are views of it: what
 * collectives over a single array hand to those over lists. */
#ifndef DISTLITE_TENSOR_BLOCKS_H
#define DISTLITE_TENSOR_BLOCKS_H

#include "base/status.h"
#include "tensor/tensor.h"

/* Blocks that need no allocation. */
#define DL_BLOCKS_INLINE 8

typedef struct dl_blocks {
    dl_tensor *tensors;
    int64_t *shapes; /* of blocks with gaps */
    dl_tensor few[DL_BLOCKS_INLINE];
} dl_blocks;

/* Block i has rows[i] entries of the first dimension, or all blocks the same number
 * where `rows` is NULL.  DL_INVALID: that does not add up to the array.  The blocks
 * borrow the array's strides; `blocks` must stay where it is. */
dl_status dl_blocks_cut(dl_blocks *blocks, const dl_tensor *whole, const int64_t *rows,
                        int count);
void dl_blocks_fini(dl_blocks *blocks);

#endif
