/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether arrays share memory, whatever their strides: what is written must not be what
 * somebody still reads. */
#ifndef DISTLITE_TENSOR_OVERLAP_H
#define DISTLITE_TENSOR_OVERLAP_H

#include "tensor/tensor.h"

/* The bytes between an array's first and behind its last; none for an empty one. */
typedef struct dl_extent {
    uintptr_t first;
    uintptr_t end;
} dl_extent;

dl_extent dl_tensor_extent(const dl_tensor *tensor);

/* What is empty meets nothing, also in the middle of something else. */
static inline bool
dl_extents_meet(dl_extent left, dl_extent right)
{
    return left.first < right.end && right.first < left.end && left.first < left.end
           && right.first < right.end;
}

/* Exact, except for arrays whose own elements may share memory (tensor/strided.h): those
 * overlap with whatever lies between their ends.  At most as slow as copying both. */
bool dl_tensors_overlap(const dl_tensor *left, const dl_tensor *right);

/* The same elements in the same order. */
bool dl_tensors_are_same(const dl_tensor *left, const dl_tensor *right);

#endif
