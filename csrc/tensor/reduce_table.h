/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of one instruction set: reduce.c chooses one table, and the tests compare
 * the tables.  NULL where an operation is not defined for a dtype. */
#ifndef DISTLITE_TENSOR_REDUCE_TABLE_H
#define DISTLITE_TENSOR_REDUCE_TABLE_H

#include "tensor/cpu.h"
#include "tensor/reduce.h"

typedef void (*dl_divide_fn)(void *target, size_t count, int divisor);
typedef void (*dl_scale_fn)(void *target, const void *source, size_t count,
                            double factor);
typedef void (*dl_widen_fn)(float *target, const void *source, size_t count);
typedef void (*dl_narrow_fn)(void *target, const float *source, size_t count);

typedef struct dl_reduce_table {
    dl_reduce_fn reduce[DL_REDUCE_OP_COUNT][DL_DTYPE_COUNT];
    dl_divide_fn divide[DL_DTYPE_COUNT];
    dl_scale_fn scale[DL_DTYPE_COUNT];
    dl_widen_fn widen[DL_DTYPE_COUNT]; /* NULL: reduced in its own precision */
    dl_narrow_fn narrow[DL_DTYPE_COUNT];
} dl_reduce_table;

extern const dl_reduce_table dl_reduce_table_base;
#if defined(__x86_64__)
extern const dl_reduce_table dl_reduce_table_avx2;
extern const dl_reduce_table dl_reduce_table_avx512;
#endif

/* Returns the table for `simd`, NULL if this build has none. */
const dl_reduce_table *dl_reduce_table_of(dl_simd simd);

#endif
