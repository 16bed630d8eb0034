/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether arrays share memory, for any strides: an operation must not write memory that
 * is still to be read. */
#ifndef DISTLITE_TENSOR_OVERLAP_H
#define DISTLITE_TENSOR_OVERLAP_H

#include "tensor/tensor.h"

/* The range of addresses from an array's first byte to one past its last; empty for an
 * empty array. */
typedef struct dl_extent {
    uintptr_t first;
    uintptr_t end;
} dl_extent;

dl_extent dl_tensor_extent(const dl_tensor *tensor);

/* An empty extent meets nothing, even if it lies within the other one. */
static inline bool
dl_extents_meet(dl_extent left, dl_extent right)
{
    return left.first < right.end && right.first < left.end && left.first < left.end
           && right.first < right.end;
}

/* Returns whether the arrays share memory.  Exact, except for arrays whose own elements
 * may overlap (tensor/strided.h): these are taken to cover all memory between their
 * ends.  Takes at most as long as copying both. */
bool dl_tensors_overlap(const dl_tensor *left, const dl_tensor *right);

/* Returns whether both have the same elements in the same order. */
bool dl_tensors_are_same(const dl_tensor *left, const dl_tensor *right);

#endif
