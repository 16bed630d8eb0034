/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/fold.h"

#include <stdbool.h>

#include "tensor/copy.h"

/* Bytes that are folded over all ranks before the next ones are: target and sources
 * stay in the first-level cache meanwhile. */
#define TILE ((size_t)8192)

dl_fold
dl_fold_of(const dl_all_reduce_args *args, int count)
{
    return (dl_fold){
        .kernel = dl_reduce_kernel(args->op, dl_reduce_dtype(args->tensor.dtype)),
        .op = args->op,
        .dtype = args->tensor.dtype,
        .item_size = args->tensor.item_size,
        .count = count,
    };
}

static const uint8_t *
source_of(const dl_fold_sources *sources, int rank)
{
    if (sources->by_rank != NULL) {
        return sources->by_rank[rank] + sources->start;
    }
    return rank == sources->own_rank ? sources->own
                                     : sources->first + (size_t)rank * sources->stride;
}

/* Types shorter than float32 are reduced in float32 over all ranks and rounded once. */
static void
fold_short_tile(const dl_fold *fold, const dl_fold_sources *sources, size_t at,
                size_t size, uint8_t *target)
{
    size_t count = size / fold->item_size;
    float sum[TILE / sizeof(float)];
    float next[TILE / sizeof(float)];

    dl_reduce_widen(sum, fold->dtype, source_of(sources, 0) + at, count);
    for (int rank = 1; rank < fold->count; rank++) {
        dl_reduce_widen(next, fold->dtype, source_of(sources, rank) + at, count);
        fold->kernel(sum, sum, next, count);
    }
    if (fold->op == DL_AVG) {
        dl_reduce_divide(sum, DL_FLOAT32, count, fold->count);
    }
    dl_reduce_narrow(target + at, fold->dtype, sum, count);
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
    bool is_short = dl_reduce_dtype(fold->dtype) != fold->dtype;
    /* The float32 buffers hold a quarter of TILE elements, which may have one byte
     * each. */
    size_t tile = is_short ? TILE / sizeof(float) : TILE;

    for (size_t at = 0; at < size; at += tile) {
        size_t part = size - at < tile ? size - at : tile;
        if (is_short) {
            fold_short_tile(fold, sources, at, part, target);
        } else {
            fold_tile(fold, sources, at, part, target);
        }
        if (copy != NULL) {
            dl_copy(copy + at, target + at, part);
        }
    }
}
