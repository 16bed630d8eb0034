/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays that are not contiguous: copies between them and contiguous memory in C order,
 * for any strides, including negative and zero ones, and for arrays made of pieces, in
 * their order. */
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

#endif
