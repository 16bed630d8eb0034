/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of one instruction set: reduce.c chooses one table, and the tests compare
 * the tables.  Private to the reductions. */
#ifndef DISTLITE_TENSOR_REDUCE_TABLE_H
#define DISTLITE_TENSOR_REDUCE_TABLE_H

#include <stdbool.h>

#include "tensor/reduce.h"

typedef enum dl_simd {
    DL_SIMD_BASE = 0, /* the baseline of the architecture */
    DL_SIMD_AVX2 = 1,
    DL_SIMD_AVX512 = 2,
    DL_SIMD_COUNT = 3,
} dl_simd;

bool dl_cpu_has(dl_simd simd);

/* Returns the widest instructions that the processor supports, or those that
 * DISTLITE_SIMD=base|avx2|avx512 names.  Reads the environment with each call: the
 * caller keeps the result. */
dl_simd dl_cpu_choose(void);

typedef void (*dl_divide_fn)(void *target, size_t count, int divisor);
typedef void (*dl_scale_fn)(void *target, const void *source, size_t count,
                            double factor);
typedef void (*dl_widen_fn)(float *target, const void *source, size_t count);
typedef void (*dl_narrow_fn)(void *target, const float *source, size_t count);

/* NULL where an operation is not defined for a dtype. */
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

/* Compiles a range of functions for one instruction set, with the pragmas of gcc or
 * clang.  Include system headers before DL_ISA_BEGIN: their inline functions would be
 * affected. */
#define DL_PRAGMA(...) _Pragma(#__VA_ARGS__)

#if defined(__clang__)
#define DL_ISA_BEGIN(features) \
    DL_PRAGMA(                 \
        clang attribute push(__attribute__((target(features))), apply_to = function))
#define DL_ISA_END DL_PRAGMA(clang attribute pop)
/* States that iterations are independent: an output may be an input, but not
 * shifted. */
#define DL_INDEPENDENT DL_PRAGMA(clang loop vectorize(assume_safety))
#else
#define DL_ISA_BEGIN(features)  \
    DL_PRAGMA(GCC push_options) \
    DL_PRAGMA(GCC target(features))
#define DL_ISA_END DL_PRAGMA(GCC pop_options)
#define DL_INDEPENDENT DL_PRAGMA(GCC ivdep)
#endif

#endif
