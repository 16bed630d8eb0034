/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays with any strides, including negative and zero ones, and arrays made of pieces:
 * copies between them and contiguous memory in C order, and whether they share memory,
 * since an operation must not write memory that is still to be read. */
#ifndef DISTLITE_TENSOR_STRIDED_H
#define DISTLITE_TENSOR_STRIDED_H

#include "tensor/tensor.h"

/* The maximum number of dimensions, which is NumPy's. */
#define DL_TENSOR_DIMENSIONS 64

/* Copy `size` bytes of the tensor's elements, beginning at byte `offset`, to contiguous
 * memory and back.  `target` and `source` point to the first of these bytes. */
void dl_strided_gather_part(void *target, const dl_tensor *tensor, size_t offset,
                            size_t size);
void dl_strided_scatter_part(const dl_tensor *tensor, const void *source, size_t offset,
                             size_t size);

/* Copies such a part between two arrays of the same size that do not overlap. */
void dl_strided_copy_part(const dl_tensor *target, const dl_tensor *source,
                          size_t offset, size_t size);

/* Returns whether two elements of the array, or of one of its pieces, may share memory,
 * so that the result of writing it is ambiguous.  Also true for a few interleaved
 * layouts that do not overlap. */
bool dl_strided_may_overlap(const dl_tensor *tensor);

/* Returns whether all elements lie within the address space.  Strides that lead out of
 * it overflow in the functions here; makers of views check those that they are given. */
bool dl_tensor_has_addresses(const dl_tensor *tensor);

/* The range of addresses from an array's first byte to one past its last; empty for an
 * empty array. */
typedef struct dl_extent {
    uintptr_t first;
    uintptr_t end;
} dl_extent;

dl_extent dl_tensor_extent(const dl_tensor *tensor);

/* An empty extent meets nothing, even if it lies within the other one. */
static inline bool
dl_extents_overlap(dl_extent left, dl_extent right)
{
    return left.first < right.end && right.first < left.end && left.first < left.end
           && right.first < right.end;
}

/* Returns whether the arrays share memory.  Exact, except for arrays whose own elements
 * may overlap: these are taken to cover all memory between their ends.  Takes at most as
 * long as copying both. */
bool dl_tensors_overlap(const dl_tensor *left, const dl_tensor *right);

/* Returns whether the elements are contiguous in C order.  Also recognises tensors whose
 * flag is not set, such as blocks of strided ones. */
bool dl_tensor_is_one_run(const dl_tensor *tensor);

/* Returns whether both have the same elements in the same order. */
bool dl_tensors_are_same(const dl_tensor *left, const dl_tensor *right);

#endif
