/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_reduction.h"

#include "pg/ucc/ucc_table.h"

#define NO_OP (-1)

/* Kinds of numbers, which differ in the operations that they support. */
typedef enum family {
    NONE = 0,
    INTEGER,
    REAL,
    COMPLEX,
    TRUTH,
} family;

static const struct {
    family family;
    int number;
} dtypes[DL_DTYPE_COUNT] = {
    [DL_BOOL] = {TRUTH, DL_UCC_UINT8},
    [DL_INT8] = {INTEGER, DL_UCC_INT8},
    [DL_UINT8] = {INTEGER, DL_UCC_UINT8},
    [DL_INT16] = {INTEGER, DL_UCC_INT16},
    [DL_UINT16] = {INTEGER, DL_UCC_UINT16},
    [DL_INT32] = {INTEGER, DL_UCC_INT32},
    [DL_UINT32] = {INTEGER, DL_UCC_UINT32},
    [DL_INT64] = {INTEGER, DL_UCC_INT64},
    [DL_UINT64] = {INTEGER, DL_UCC_UINT64},
    [DL_FLOAT32] = {REAL, DL_UCC_FLOAT32},
    [DL_FLOAT64] = {REAL, DL_UCC_FLOAT64},
    [DL_COMPLEX64] = {COMPLEX, DL_UCC_COMPLEX64},
    [DL_COMPLEX128] = {COMPLEX, DL_UCC_COMPLEX128},
};

/* Returns UCC's constant for a short float that its kernels on a device know, or 0. */
static int
short_float(dl_dtype dtype)
{
    return dtype == DL_FLOAT16    ? DL_UCC_FLOAT16
           : dtype == DL_BFLOAT16 ? DL_UCC_BFLOAT16
                                  : 0;
}

/* AVG divides and PREMUL_SUM multiplies in this process, after or before UCC's sum. */
static int
op_of_real(dl_reduce_op op)
{
    switch (op) {
    case DL_SUM:
    case DL_AVG:
    case DL_PREMUL_SUM:
        return DL_UCC_SUM;
    case DL_PRODUCT:
        return DL_UCC_PRODUCT;
    case DL_MIN:
        return DL_UCC_MIN;
    case DL_MAX:
        return DL_UCC_MAX;
    default:
        return NO_OP;
    }
}

static int
op_of_integer(dl_reduce_op op)
{
    switch (op) {
    case DL_BAND:
        return DL_UCC_BAND;
    case DL_BOR:
        return DL_UCC_BOR;
    case DL_BXOR:
        return DL_UCC_BXOR;
    default:
        return op_of_real(op);
    }
}

/* A bool is a byte of 0 or 1: its sum, a logical or, is the maximum. */
static int
op_of_truth(dl_reduce_op op)
{
    switch (op) {
    case DL_SUM:
    case DL_MAX:
    case DL_BOR:
        return DL_UCC_MAX;
    case DL_PRODUCT:
    case DL_MIN:
    case DL_BAND:
        return DL_UCC_MIN;
    case DL_BXOR:
        return DL_UCC_BXOR;
    default:
        return NO_OP;
    }
}

static int
op_of(family family, dl_reduce_op op)
{
    int real = op_of_real(op);

    switch (family) {
    case INTEGER:
        return op_of_integer(op);
    case TRUTH:
        return op_of_truth(op);
    case REAL:
        return real;
    case COMPLEX:
        return real == DL_UCC_SUM || real == DL_UCC_PRODUCT ? real : NO_OP;
    default:
        return NO_OP;
    }
}

/* Uses pairs of floats, because UCC before 1.1 has no complex numbers. */
static void
split(dl_ucc_reduction *self)
{
    self->dtype = self->dtype == DL_UCC_COMPLEX64 ? DL_UCC_FLOAT32 : DL_UCC_FLOAT64;
    self->per_element = 2;
    self->number_size /= 2;
}

dl_status
dl_ucc_reduction_of(dl_reduce_op op, dl_dtype dtype, dl_ucc_reduction *reduction)
{
    dl_dtype computed = dl_reduce_dtype(dtype);
    family family = dtypes[computed].family;
    int found = op_of(family, op);

    if (found == NO_OP) {
        return dl_fail(DL_UNSUPPORTED, "UCC has no %s of %s", dl_reduce_op_name(op),
                       dl_dtype_name(dtype));
    }
    *reduction = (dl_ucc_reduction){
        .dtype = dtypes[computed].number,
        .op = found,
        .per_element = 1,
        .number_size = dl_dtype_size(computed),
        .is_widened = computed != dtype,
    };
    if (family == COMPLEX && found == DL_UCC_SUM) {
        split(reduction);
    }
    return DL_OK;
}

dl_status
dl_ucc_reduction_on_device(dl_reduce_op op, dl_dtype dtype, dl_ucc_reduction *reduction)
{
    dl_ucc_reduction found;

    DL_TRY(dl_ucc_reduction_of(op, dtype, &found));
    if (op == DL_PREMUL_SUM || (found.is_widened && short_float(dtype) == 0)) {
        return dl_fail(
            DL_UNSUPPORTED,
            "UCC has no %s of %s on devices; convert the array, or reduce it "
            "on the CPU",
            dl_reduce_op_name(op), dl_dtype_name(dtype));
    }
    if (found.is_widened) {
        found.dtype = short_float(dtype);
        found.number_size = dl_dtype_size(dtype);
        found.is_widened = false;
    }
    found.is_averaged = op == DL_AVG;
    found.op = found.is_averaged ? DL_UCC_AVG : found.op;
    *reduction = found;
    return DL_OK;
}
