/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A fold reduces the same range of the arrays of all ranks to one result.  It always
 * goes in the order of the ranks, so that the bits of a result depend neither on the
 * rank that computes it nor on the algorithm. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_FOLD_H
#define DISTLITE_PG_CPU_ALGORITHMS_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pg/call.h"

typedef struct dl_fold {
    dl_reduce_fn kernel;
    dl_reduce_op op;
    dl_dtype dtype;
    size_t item_size;
    int count; /* ranks, at least 2 */
} dl_fold;

/* Where the ranks' data is: `stride` bytes apart from `first` on, except that of
 * `own_rank`, which is at `own`.  If `by_rank` is set, it is `start` bytes from those
 * pointers instead. */
typedef struct dl_fold_sources {
    const uint8_t *first;
    size_t stride;
    int own_rank; /* -1: none */
    const uint8_t *own;
    uint8_t *const *by_rank; /* or NULL */
    size_t start;
} dl_fold_sources;

dl_fold dl_fold_of(const dl_call *call, int count);

/* Folds `size` bytes of the sources into `target`, and copies the result to `copy`
 * unless that is NULL.  `target` may be one of the first two sources, but overlaps no
 * other one; `copy` may be any source. */
void dl_fold_run(const dl_fold *fold, const dl_fold_sources *sources, size_t size,
                 uint8_t *target, uint8_t *copy);

/* Arrays of consecutive ranks, `stride` bytes apart from `first` on, which are replaced
 * by their prefixes.  Each is rounded to the dtype only where it is stored. */
typedef struct dl_prefixes {
    uint8_t *first;
    size_t stride;
    int count;
    bool is_exclusive; /* each gets the prefix that ends before it */
    /* In the dtype that the fold computes in: the reduction of the ranks before the first
     * one, NULL if there are none, and where that of all ranks goes, NULL if it is not
     * needed.  Both may be the same. */
    const uint8_t *before;
    uint8_t *after;
} dl_prefixes;

/* Computes the prefixes of `size` bytes of the arrays.  Where no rank comes before the
 * first one, its array stays as it is. */
void dl_fold_prefixes(const dl_fold *fold, const dl_prefixes *prefixes, size_t size);

#endif
