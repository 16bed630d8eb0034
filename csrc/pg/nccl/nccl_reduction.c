/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_reduction.h"

#include <stdint.h>

enum {
    NCCL_SUM = 0,
    NCCL_PRODUCT = 1,
    NCCL_MAX = 2,
    NCCL_MIN = 3,
    NCCL_AVG = 4,
    NO_OP = -1,
};

enum {
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,
};

/* The first version of NCCL that reduces eight-bit floats. */
#define EIGHT_BIT_FLOATS 22400

/* NCCL's numbers plus one, so that 0 means a dtype that is not listed. */
static const struct {
    int number;
    size_t per_element;
} dtypes[DL_DTYPE_COUNT] = {
    [DL_BOOL] = {1 + DL_NCCL_UINT8, 1},
    [DL_INT8] = {1 + 0, 1},
    [DL_UINT8] = {1 + DL_NCCL_UINT8, 1},
    [DL_INT32] = {1 + 2, 1},
    [DL_UINT32] = {1 + 3, 1},
    [DL_INT64] = {1 + 4, 1},
    [DL_UINT64] = {1 + 5, 1},
    [DL_FLOAT16] = {1 + NCCL_FLOAT16, 1},
    [DL_FLOAT32] = {1 + NCCL_FLOAT32, 1},
    [DL_FLOAT64] = {1 + NCCL_FLOAT64, 1},
    [DL_BFLOAT16] = {1 + NCCL_BFLOAT16, 1},
    [DL_COMPLEX64] = {1 + NCCL_FLOAT32, 2},
    [DL_COMPLEX128] = {1 + NCCL_FLOAT64, 2},
    [DL_FLOAT8_E4M3FN] = {1 + 10, 1},
    [DL_FLOAT8_E5M2] = {1 + 11, 1},
};

/* A bool is a byte of 0 or 1, so that a logical or is the maximum, and a logical and
 * the minimum. */
static int
op_of_bool(dl_reduce_op op)
{
    switch (op) {
    case DL_SUM:
    case DL_MAX:
    case DL_BOR:
        return NCCL_MAX;
    case DL_PRODUCT:
    case DL_MIN:
    case DL_BAND:
        return NCCL_MIN;
    default:
        return NO_OP;
    }
}

static int
op_of(dl_reduce_op op, dl_dtype dtype)
{
    bool is_complex = dtype == DL_COMPLEX64 || dtype == DL_COMPLEX128;

    if (dtype == DL_BOOL) {
        return op_of_bool(op);
    }
    switch (op) {
    case DL_SUM:
    case DL_PREMUL_SUM: /* replaced by dl_nccl_reduction_scale() */
        return NCCL_SUM;
    case DL_AVG:
        return NCCL_AVG;
    case DL_PRODUCT: /* of complex numbers, not the product of their parts */
        return is_complex ? NO_OP : NCCL_PRODUCT;
    case DL_MIN:
        return NCCL_MIN;
    case DL_MAX:
        return NCCL_MAX;
    default:
        return NO_OP;
    }
}

/* NCCL multiplies in the dtype itself, so integers and bools cannot have a factor. */
static bool
has_factor(dl_dtype dtype)
{
    return dtype == DL_FLOAT16 || dtype == DL_BFLOAT16 || dtype == DL_FLOAT32
           || dtype == DL_FLOAT64 || dtype == DL_COMPLEX64 || dtype == DL_COMPLEX128;
}

dl_status
dl_nccl_reduction_check(const dl_nccl_table *nccl, dl_reduce_op op, dl_dtype dtype)
{
    bool is_eight_bit = dtype == DL_FLOAT8_E4M3FN || dtype == DL_FLOAT8_E5M2;
    char found[32];

    if (is_eight_bit && nccl->version < EIGHT_BIT_FLOATS) {
        dl_nccl_version_text(nccl->version, found, sizeof found);
        return dl_fail(DL_UNSUPPORTED,
                       "reducing %s needs NCCL 2.24 or newer; this is %s",
                       dl_dtype_name(dtype), found);
    }
    if (dtypes[dtype].number == 0) {
        return dl_fail(DL_UNSUPPORTED,
                       "NCCL cannot reduce %s; convert the array, or reduce it on the "
                       "CPU",
                       dl_dtype_name(dtype));
    }
    if (op_of(op, dtype) == NO_OP || (op == DL_PREMUL_SUM && !has_factor(dtype))) {
        return dl_fail(DL_UNSUPPORTED, "Cannot use ReduceOp.%s of %s with NCCL",
                       dl_reduce_op_name(op), dl_dtype_name(dtype));
    }
    return DL_OK;
}

dl_nccl_reduction
dl_nccl_reduction_of(dl_reduce_op op, dl_dtype dtype)
{
    return (dl_nccl_reduction){
        .dtype = dtypes[dtype].number - 1,
        .op = op_of(op, dtype),
        .per_element = dtypes[dtype].per_element,
    };
}

/* NCCL reads the factor before op_create() returns, in the dtype of the elements. */
int
dl_nccl_reduction_scale(const dl_nccl_table *nccl, void *comm, double factor,
                        dl_nccl_reduction *reduction)
{
    float single = (float)factor;
    uint16_t half;
    void *scalar = &factor;

    if (reduction->dtype == NCCL_FLOAT32) {
        scalar = &single;
    } else if (reduction->dtype != NCCL_FLOAT64) {
        dl_reduce_narrow(&half,
                         reduction->dtype == NCCL_FLOAT16 ? DL_FLOAT16 : DL_BFLOAT16,
                         &single, 1);
        scalar = &half;
    }
    int result = nccl->op_create(&reduction->op, scalar, reduction->dtype,
                                 DL_NCCL_SCALAR_ON_HOST, comm);
    reduction->is_made = !dl_nccl_has_failed(result);
    return result;
}

void
dl_nccl_reduction_end(const dl_nccl_table *nccl, void *comm,
                      const dl_nccl_reduction *reduction)
{
    if (reduction->is_made) {
        nccl->op_destroy(reduction->op, comm);
    }
}
