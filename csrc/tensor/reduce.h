/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Element-wise reductions of contiguous arrays.  One table of kernels per instruction
 * set, chosen once from what the processor has (DISTLITE_SIMD=base|avx2|avx512 to
 * choose by hand). */
#ifndef DISTLITE_TENSOR_REDUCE_H
#define DISTLITE_TENSOR_REDUCE_H

#include "base/status.h"
#include "tensor/tensor.h"

/* torch's numbering; compared between ranks: never renumber. */
typedef enum dl_reduce_op {
    DL_SUM = 0,
    DL_AVG = 1,
    DL_PRODUCT = 2,
    DL_MIN = 3,
    DL_MAX = 4,
    DL_BAND = 5,
    DL_BOR = 6,
    DL_BXOR = 7,
    DL_PREMUL_SUM = 8,
    DL_REDUCE_OP_COUNT = 9,
} dl_reduce_op;

const char *dl_reduce_op_name(dl_reduce_op op); /* "SUM" */

/* Whether the operation has a meaning and a kernel for the elements of this tensor; a
 * DL_INVALID that names their dtype otherwise. */
dl_status dl_reduce_check(dl_reduce_op op, const dl_tensor *tensor);

/* target[i] = left[i] op right[i].  `target` may be `left` or `right`.  AVG and
 * PREMUL_SUM add. */
typedef void (*dl_reduce_fn)(void *target, const void *left, const void *right,
                             size_t count);

/* What a reduction of this dtype computes in: float32 for the types shorter than that,
 * which are rounded once, at the end; itself for all others. */
dl_dtype dl_reduce_dtype(dl_dtype dtype);

/* Of a dtype that is computed in as it is. */
dl_reduce_fn dl_reduce_kernel(dl_reduce_op op, dl_dtype dtype);

/* To and from float32; of a dtype that is not computed in as it is. */
void dl_reduce_widen(float *target, dl_dtype dtype, const void *source, size_t count);
void dl_reduce_narrow(void *target, dl_dtype dtype, const float *source, size_t count);

/* What AVG does after its sum: target[i] /= divisor. */
void dl_reduce_divide(void *target, dl_dtype dtype, size_t count, int divisor);

/* What PREMUL_SUM does before its sum: target[i] = source[i] * factor, in the precision
 * of dl_reduce_dtype().  `target` may be `source`. */
void dl_reduce_scale(void *target, dl_dtype dtype, const void *source, size_t count,
                     double factor);

#endif
