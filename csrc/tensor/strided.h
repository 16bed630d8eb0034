/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays whose elements do not lie one after another: copied to and from contiguous
 * memory in C order, whatever the strides (negative and zero ones too). */
#ifndef DISTLITE_TENSOR_STRIDED_H
#define DISTLITE_TENSOR_STRIDED_H

#include "tensor/tensor.h"

/* What NumPy and the kernels agree on as most dimensions of an array. */
#define DL_TENSOR_DIMENSIONS 64

/* Elements of the tensor into `target`, dl_tensor_size() bytes. */
void dl_strided_gather(void *target, const dl_tensor *tensor);

/* The reverse. */
void dl_strided_scatter(const dl_tensor *tensor, const void *source);

/* Whether two elements may share memory, so that writing the array has no one meaning.
 * True too for a few interleavings that do not. */
bool dl_strided_may_overlap(const dl_tensor *tensor);

#endif
