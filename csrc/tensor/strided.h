/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays whose elements do not lie one after another: copied to and from contiguous
 * memory in C order, whatever the strides (negative and zero ones too), and the pieces of
 * an array that has some, in their order. */
#ifndef DISTLITE_TENSOR_STRIDED_H
#define DISTLITE_TENSOR_STRIDED_H

#include "tensor/tensor.h"

/* What NumPy and the kernels agree on as most dimensions of an array. */
#define DL_TENSOR_DIMENSIONS 64

/* Elements of the tensor, which has no pieces, into `target`: dl_tensor_size() bytes. */
void dl_strided_gather(void *target, const dl_tensor *tensor);

/* The reverse. */
void dl_strided_scatter(const dl_tensor *tensor, const void *source);

/* The same for `size` of the bytes, those from `offset` on: `target` and `source` begin
 * with the first of them. */
void dl_strided_gather_part(void *target, const dl_tensor *tensor, size_t offset,
                            size_t size);
void dl_strided_scatter_part(const dl_tensor *tensor, const void *source, size_t offset,
                             size_t size);

/* Copies such a part between arrays of the same size that do not overlap. */
void dl_strided_copy_part(const dl_tensor *target, const dl_tensor *source,
                          size_t offset, size_t size);

/* Whether two elements may share memory, so that writing the array has no one meaning;
 * of pieces, two of the same.  True too for a few interleavings that do not. */
bool dl_strided_may_overlap(const dl_tensor *tensor);

#endif
