/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/fold.h"

#include "pg/cpu/algorithms/limits.h"
#include "tensor/copy.h"

dl_fold
dl_fold_of(const dl_call *call, int count)
{
    return (dl_fold){
        .kernel =
            dl_reduce_kernel(call->reduction, dl_reduce_dtype(call->tensor.dtype)),
        .op = call->reduction,
        .dtype = call->tensor.dtype,
        .item_size = call->tensor.item_size,
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
    float sum[DL_REDUCE_PIECE / sizeof(float)];
    float next[DL_REDUCE_PIECE / sizeof(float)];

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
    /* The float32 buffers hold a quarter of a piece's elements, which may have one byte
     * each. */
    size_t tile = is_short ? DL_REDUCE_PIECE / sizeof(float) : DL_REDUCE_PIECE;

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

/* Loads a tile into the dtype that the fold computes in. */
static void
load_tile(const dl_fold *fold, bool is_short, void *target, const uint8_t *source,
          size_t size)
{
    if (is_short) {
        dl_reduce_widen(target, fold->dtype, source, size / fold->item_size);
    } else {
        dl_copy(target, source, size);
    }
}

static void
store_tile(const dl_fold *fold, bool is_short, uint8_t *target, const void *source,
           size_t size)
{
    if (is_short) {
        dl_reduce_narrow(target, fold->dtype, source, size / fold->item_size);
    } else {
        dl_copy(target, source, size);
    }
}

/* The sum stays in a buffer, because an exclusive prefix replaces the array that the
 * next one needs, and because short types are rounded where they are stored only. */
static void
prefix_tile(const dl_fold *fold, const dl_prefixes *prefixes, bool is_short, size_t at,
            size_t size)
{
    size_t count = size / fold->item_size;
    size_t worked = is_short ? count * sizeof(float) : size;
    size_t worked_at = is_short ? at / fold->item_size * sizeof(float) : at;
    bool has_sum = prefixes->before != NULL;
    _Alignas(64) uint8_t sum[DL_REDUCE_PIECE];
    _Alignas(64) uint8_t next[DL_REDUCE_PIECE];

    if (has_sum) {
        dl_copy(sum, prefixes->before + worked_at, worked);
    }
    for (int i = 0; i < prefixes->count; i++) {
        uint8_t *array = prefixes->first + (size_t)i * prefixes->stride + at;
        load_tile(fold, is_short, has_sum ? next : sum, array, size);
        if (has_sum && prefixes->is_exclusive) {
            store_tile(fold, is_short, array, sum, size);
        }
        if (has_sum) {
            fold->kernel(sum, sum, next, count);
        }
        if (has_sum && !prefixes->is_exclusive) {
            store_tile(fold, is_short, array, sum, size);
        }
        has_sum = true;
    }
    if (prefixes->after != NULL) {
        dl_copy(prefixes->after + worked_at, sum, worked);
    }
}

/* Inclusive prefixes of types that are not widened need no buffer. */
static void
prefix_tile_in_place(const dl_fold *fold, const dl_prefixes *prefixes, size_t at,
                     size_t size)
{
    size_t count = size / fold->item_size;
    const uint8_t *sum = prefixes->before != NULL ? prefixes->before + at : NULL;

    for (int i = 0; i < prefixes->count; i++) {
        uint8_t *array = prefixes->first + (size_t)i * prefixes->stride + at;
        if (sum != NULL) {
            fold->kernel(array, sum, array, count);
        }
        sum = array;
    }
    if (prefixes->after != NULL) {
        dl_copy(prefixes->after + at, sum, size);
    }
}

void
dl_fold_prefixes(const dl_fold *fold, const dl_prefixes *prefixes, size_t size)
{
    bool is_short = dl_reduce_dtype(fold->dtype) != fold->dtype;
    size_t tile = is_short ? DL_REDUCE_PIECE / sizeof(float) : DL_REDUCE_PIECE;

    for (size_t at = 0; at < size; at += tile) {
        size_t part = size - at < tile ? size - at : tile;
        if (is_short || prefixes->is_exclusive) {
            prefix_tile(fold, prefixes, is_short, at, part);
        } else {
            prefix_tile_in_place(fold, prefixes, at, part);
        }
    }
}
