/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels, each written once as a plain loop, which the compiler vectorises for the
 * instruction set of the including file.  That file defines DL_KERNEL(name), hence no
 * include guard.  Requires -O3: at -O2 gcc leaves the loops scalar. */
#include "tensor/isa.h"
#include "tensor/reduce_table.h"

#define DL_LOOP(name, type, expression)                                            \
    static void DL_KERNEL(name)(void *target, const void *left, const void *right, \
                                size_t count)                                      \
    {                                                                              \
        type *results = target;                                                    \
        const type *lefts = left;                                                  \
        const type *rights = right;                                                \
        DL_INDEPENDENT                                                             \
        for (size_t i = 0; i < count; i++) {                                       \
            type a = lefts[i];                                                     \
            type b = rights[i];                                                    \
            results[i] = (type)(expression);                                       \
        }                                                                          \
    }

/* Signed integers use these kernels as well: the bits are the same, and unsigned
 * arithmetic wraps where signed overflow is undefined.  1u keeps short types from being
 * promoted to int. */
#define DL_UNSIGNED_LOOPS(name, type)         \
    DL_LOOP(sum_##name, type, 1u * a + b)     \
    DL_LOOP(product_##name, type, 1u * a * b) \
    DL_LOOP(band_##name, type, a &b)          \
    DL_LOOP(bor_##name, type, a | b)          \
    DL_LOOP(bxor_##name, type, a ^ b)

#define DL_ORDER_LOOPS(name, type)           \
    DL_LOOP(min_##name, type, a < b ? a : b) \
    DL_LOOP(max_##name, type, a > b ? a : b)

DL_UNSIGNED_LOOPS(uint8, uint8_t)
DL_UNSIGNED_LOOPS(uint16, uint16_t)
DL_UNSIGNED_LOOPS(uint32, uint32_t)
DL_UNSIGNED_LOOPS(uint64, uint64_t)
DL_ORDER_LOOPS(int8, int8_t)
DL_ORDER_LOOPS(uint8, uint8_t)
DL_ORDER_LOOPS(int16, int16_t)
DL_ORDER_LOOPS(uint16, uint16_t)
DL_ORDER_LOOPS(int32, int32_t)
DL_ORDER_LOOPS(uint32, uint32_t)
DL_ORDER_LOOPS(int64, int64_t)
DL_ORDER_LOOPS(uint64, uint64_t)

#include "tensor/convert_loops.h"
#include "tensor/float_loops.h"

/* Any byte other than 0 is true; results are 0 or 1. */
#define DL_BOOL_LOOP(name, join) DL_LOOP(name##_bool, uint8_t, (a != 0) join(b != 0))

DL_BOOL_LOOP(any, |)
DL_BOOL_LOOP(all, &)
DL_BOOL_LOOP(odd, ^)

#define DL_UNSIGNED_ROW(op)                                                    \
    [DL_INT8] = DL_KERNEL(op##_uint8), [DL_UINT8] = DL_KERNEL(op##_uint8),     \
    [DL_INT16] = DL_KERNEL(op##_uint16), [DL_UINT16] = DL_KERNEL(op##_uint16), \
    [DL_INT32] = DL_KERNEL(op##_uint32), [DL_UINT32] = DL_KERNEL(op##_uint32), \
    [DL_INT64] = DL_KERNEL(op##_uint64), [DL_UINT64] = DL_KERNEL(op##_uint64)

#define DL_ORDER_ROW(op)                                                      \
    [DL_INT8] = DL_KERNEL(op##_int8), [DL_UINT8] = DL_KERNEL(op##_uint8),     \
    [DL_INT16] = DL_KERNEL(op##_int16), [DL_UINT16] = DL_KERNEL(op##_uint16), \
    [DL_INT32] = DL_KERNEL(op##_int32), [DL_UINT32] = DL_KERNEL(op##_uint32), \
    [DL_INT64] = DL_KERNEL(op##_int64), [DL_UINT64] = DL_KERNEL(op##_uint64)

#define DL_FLOAT_ROW(op) \
    [DL_FLOAT32] = DL_KERNEL(op##_float32), [DL_FLOAT64] = DL_KERNEL(op##_float64)

#define DL_COMPLEX_ROW(op)                                        \
    [DL_COMPLEX64] = DL_KERNEL(op##_complex64), [DL_COMPLEX128] = \
                                                    DL_KERNEL(op##_complex128)

#define DL_SHORT_ROW(way)                                \
    [DL_FLOAT16] = DL_KERNEL(way##_float16),             \
    [DL_BFLOAT16] = DL_KERNEL(way##_bfloat16),           \
    [DL_FLOAT8_E4M3FN] = DL_KERNEL(way##_float8_e4m3fn), \
    [DL_FLOAT8_E5M2] = DL_KERNEL(way##_float8_e5m2)

#define DL_BOOL_ROW(loop) [DL_BOOL] = DL_KERNEL(loop##_bool)

const dl_reduce_table DL_KERNEL(dl_reduce_table) = {
    .reduce =
        {
            [DL_SUM] = {DL_UNSIGNED_ROW(sum), DL_FLOAT_ROW(sum), DL_COMPLEX_ROW(sum),
                        DL_BOOL_ROW(any)},
            [DL_AVG] = {DL_FLOAT_ROW(sum), DL_COMPLEX_ROW(sum)},
            [DL_PRODUCT] = {DL_UNSIGNED_ROW(product), DL_FLOAT_ROW(product),
                            DL_COMPLEX_ROW(product), DL_BOOL_ROW(all)},
            [DL_MIN] = {DL_ORDER_ROW(min), DL_FLOAT_ROW(min), DL_BOOL_ROW(all)},
            [DL_MAX] = {DL_ORDER_ROW(max), DL_FLOAT_ROW(max), DL_BOOL_ROW(any)},
            [DL_BAND] = {DL_UNSIGNED_ROW(band), DL_BOOL_ROW(all)},
            [DL_BOR] = {DL_UNSIGNED_ROW(bor), DL_BOOL_ROW(any)},
            [DL_BXOR] = {DL_UNSIGNED_ROW(bxor), DL_BOOL_ROW(odd)},
            [DL_PREMUL_SUM] = {DL_FLOAT_ROW(sum), DL_COMPLEX_ROW(sum)},
        },
    .divide = {DL_FLOAT_ROW(divide), DL_COMPLEX_ROW(divide)},
    .scale = {DL_FLOAT_ROW(scale), DL_COMPLEX_ROW(scale)},
    .widen = {DL_SHORT_ROW(widen)},
    .narrow = {DL_SHORT_ROW(narrow)},
};
