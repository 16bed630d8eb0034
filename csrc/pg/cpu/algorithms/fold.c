/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/fold.h"

#include <string.h>

/* Bytes that go through all ranks before the next ones do: target and sources stay in
 * the first-level cache meanwhile. */
#define TILE ((size_t)8192)

dl_fold
dl_fold_of(const dl_all_reduce_args *args, int count)
{
    return (dl_fold){
        .kernel = dl_reduce_kernel(args->op, args->tensor.dtype),
        .op = args->op,
        .dtype = args->tensor.dtype,
        .item_size = args->tensor.item_size,
        .count = count,
    };
}

static const uint8_t *
source_of(const dl_fold_sources *sources, int rank)
{
    return rank == sources->own_rank ? sources->own
                                     : sources->first + (size_t)rank * sources->stride;
}

static void
fold_tile(const dl_fold *fold, const dl_fold_sources *sources, size_t at, size_t size,
          uint8_t *target)
{
    size_t count = size / fold->item_size;

    fold->kernel(target + at, source_of(sources, 0) + at, source_of(sources, 1) + at,
                 count);
    for (int rank = 2; rank < fold->count; rank++) {
        fold->kernel(target + at, target + at, source_of(sources, rank) + at, count);
    }
    if (fold->op == DL_AVG) {
        dl_reduce_divide(target + at, fold->dtype, count, fold->count);
    }
}

void
dl_fold_run(const dl_fold *fold, const dl_fold_sources *sources, size_t size,
            uint8_t *target, uint8_t *copy)
{
    for (size_t at = 0; at < size; at += TILE) {
        size_t part = size - at < TILE ? size - at : TILE;
        fold_tile(fold, sources, at, part, target);
        if (copy != NULL) {
            memcpy(copy + at, target + at, part);
        }
    }
}
