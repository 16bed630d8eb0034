/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How reductions are expressed by UCC's.  Floats of less than 32 bits are reduced as
 * `float32` and rounded once, a bool is a byte, and complex numbers are summed as pairs
 * of floats. */
#ifndef DISTLITE_PG_UCC_UCC_REDUCTION_H
#define DISTLITE_PG_UCC_UCC_REDUCTION_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/reduce.h"

typedef struct dl_ucc_reduction {
    int dtype; /* UCC's constants for both */
    int op;
    size_t per_element; /* numbers of `dtype` per element */
    size_t number_size;
    bool is_widened;
} dl_ucc_reduction;

/* Returns how UCC reduces `dtype` by `op`, which dl_reduce_check() has allowed: UCC
 * reports success with wrong numbers for some reductions that it lacks. */
dl_ucc_reduction dl_ucc_reduction_of(dl_reduce_op op, dl_dtype dtype);

#endif
