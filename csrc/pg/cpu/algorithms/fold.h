/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The same stretch of every rank's array reduced into one, always in the order of the
 * ranks: the bits of a result depend neither on who computes it nor on the algorithm. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_FOLD_H
#define DISTLITE_PG_CPU_ALGORITHMS_FOLD_H

#include <stddef.h>
#include <stdint.h>

#include "pg/arguments.h"

typedef struct dl_fold {
    dl_reduce_fn kernel;
    dl_reduce_op op;
    dl_dtype dtype;
    size_t item_size;
    int count; /* ranks, at least 2 */
} dl_fold;

/* Where the ranks' data lies: `stride` bytes apart, but for one rank's. */
typedef struct dl_fold_sources {
    const uint8_t *first;
    size_t stride;
    int own_rank; /* -1: no exception */
    const uint8_t *own;
    uint8_t *const *by_rank; /* in place of all that: `start` bytes from these */
    size_t start;
} dl_fold_sources;

dl_fold dl_fold_of(const dl_all_reduce_args *args, int count);

/* `size` bytes into `target`, which is none of the sources but perhaps one of the first
 * two, and into `copy` as well unless that is NULL; `copy` may be the exceptional
 * source. */
void dl_fold_run(const dl_fold *fold, const dl_fold_sources *sources, size_t size,
                 uint8_t *target, uint8_t *copy);

#endif
