/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Element-wise reductions of contiguous arrays.  There is one table of kernels per
 * instruction set, and one is chosen by what the processor supports. */
#ifndef DISTLITE_TENSOR_REDUCE_H
#define DISTLITE_TENSOR_REDUCE_H

#include <stdbool.h>

#include "base/status.h"
#include "tensor/tensor.h"

/* The numbers are torch's, and ranks compare them: never renumber. */
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
    /* These three, which torch does not have, have no kernels here but a dl_reducer
     * (tensor/reducer.h). */
    DL_MINLOC = 9,
    DL_MAXLOC = 10,
    DL_FUNCTION = 11,
    DL_REDUCE_OP_COUNT = 12,
} dl_reduce_op;

static inline bool
dl_reduce_op_has_reducer(dl_reduce_op op)
{
    return op >= DL_MINLOC && op <= DL_FUNCTION;
}

const char *dl_reduce_op_name(dl_reduce_op op); /* "SUM" */

/* Returns DL_OK if the operation is defined for the tensor's dtype, else DL_INVALID
 * with a text that names the dtype and `caller`, the function that was called. */
dl_status dl_reduce_check(dl_reduce_op op, const dl_tensor *tensor, const char *caller);

/* Computes target[i] = left[i] op right[i].  `target` may be `left` or `right`.  The
 * kernels of AVG and PREMUL_SUM add. */
typedef void (*dl_reduce_fn)(void *target, const void *left, const void *right,
                             size_t count);

/* Returns the dtype in which a reduction computes: float32 for shorter floating-point
 * types, which are rounded once, at the end; otherwise the dtype itself. */
dl_dtype dl_reduce_dtype(dl_dtype dtype);

/* Returns the kernel for a dtype for which dl_reduce_dtype() is the dtype itself; NULL
 * if the operation is not defined. */
dl_reduce_fn dl_reduce_kernel(dl_reduce_op op, dl_dtype dtype);

/* Convert to and from float32, for a dtype that dl_reduce_dtype() maps to float32. */
void dl_reduce_widen(float *target, dl_dtype dtype, const void *source, size_t count);
void dl_reduce_narrow(void *target, dl_dtype dtype, const float *source, size_t count);

/* Completes AVG after its sum: target[i] /= divisor. */
void dl_reduce_divide(void *target, dl_dtype dtype, size_t count, int divisor);

/* Prepares PREMUL_SUM before its sum: target[i] = source[i] * factor, in the precision
 * of dl_reduce_dtype().  `target` may be `source`. */
void dl_reduce_scale(void *target, dl_dtype dtype, const void *source, size_t count,
                     double factor);

#endif
