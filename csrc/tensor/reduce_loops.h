/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels, each written once as a plain loop that the compiler turns into vectors of
 * the instruction set of the file that includes this one; that file defines
 * DL_KERNEL(name), hence no include guard.  -O3 is needed: at -O2 gcc leaves the loops
 * scalar. */
#include "tensor/convert_loops.h"
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

/* Signed integers borrow these: the bits are the same, and unsigned overflow wraps
 * where signed overflow is undefined.  1u keeps short types from becoming int. */
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

/* A comparison with NaN is false, and zeros of two signs compare equal, so that the
 * result of a plain ternary depends on which side each stands.  Here any NaN gives one
 * and the same NaN, and equal values join their bits: of two zeros, MIN takes the
 * negative one and MAX the positive one. */
#define DL_PICK(name, type, bits, is_left, join)           \
    static inline type DL_KERNEL(name)(type a, type b)     \
    {                                                      \
        bits a_bits, b_bits, joined;                       \
        type equal;                                        \
        memcpy(&a_bits, &a, sizeof a);                     \
        memcpy(&b_bits, &b, sizeof b);                     \
        joined = a_bits join b_bits;                       \
        memcpy(&equal, &joined, sizeof equal);             \
        type picked = is_left ? a : b;                     \
        picked = a == b ? equal : picked;                  \
        return ((a != a) | (b != b)) ? (type)NAN : picked; \
    }

#define DL_FLOAT_LOOPS(name, type, bits)                                          \
    DL_PICK(lesser_##name, type, bits, a < b, |)                                  \
    DL_PICK(greater_##name, type, bits, a > b, &)                                 \
    DL_LOOP(sum_##name, type, a + b)                                              \
    DL_LOOP(product_##name, type, a *b)                                           \
    DL_LOOP(min_##name, type, DL_KERNEL(lesser_##name)(a, b))                     \
    DL_LOOP(max_##name, type, DL_KERNEL(greater_##name)(a, b))                    \
    static void DL_KERNEL(divide_##name)(void *target, size_t count, int divisor) \
    {                                                                             \
        type *results = target;                                                   \
        for (size_t i = 0; i < count; i++) {                                      \
            results[i] /= (type)divisor;                                          \
        }                                                                         \
    }                                                                             \
    static void DL_KERNEL(scale_##name)(void *target, const void *source,         \
                                        size_t count, double factor)              \
    {                                                                             \
        type *results = target;                                                   \
        const type *values = source;                                              \
        DL_INDEPENDENT                                                            \
        for (size_t i = 0; i < count; i++) {                                      \
            results[i] = values[i] * (type)factor;                                \
        }                                                                         \
    }

DL_FLOAT_LOOPS(float32, float, uint32_t)
DL_FLOAT_LOOPS(float64, double, uint64_t)

/* Any byte but 0 is true; results are 0 or 1. */
#define DL_BOOL_LOOP(name, join) DL_LOOP(name##_bool, uint8_t, (a != 0) join(b != 0))

DL_BOOL_LOOP(any, |)
DL_BOOL_LOOP(all, &)
DL_BOOL_LOOP(odd, ^)

/* Sums are those of the parts. */
#define DL_COMPLEX_LOOPS(name, part, part_name)                                   \
    static void DL_KERNEL(sum_##name)(void *target, const void *left,             \
                                      const void *right, size_t count)            \
    {                                                                             \
        DL_KERNEL(sum_##part_name)(target, left, right, 2 * count);               \
    }                                                                             \
    static void DL_KERNEL(divide_##name)(void *target, size_t count, int divisor) \
    {                                                                             \
        DL_KERNEL(divide_##part_name)(target, 2 * count, divisor);                \
    }                                                                             \
    static void DL_KERNEL(scale_##name)(void *target, const void *source,         \
                                        size_t count, double factor)              \
    {                                                                             \
        DL_KERNEL(scale_##part_name)(target, source, 2 * count, factor);          \
    }                                                                             \
    static void DL_KERNEL(product_##name)(void *target, const void *left,         \
                                          const void *right, size_t count)        \
    {                                                                             \
        part *results = target;                                                   \
        const part *lefts = left;                                                 \
        const part *rights = right;                                               \
        DL_INDEPENDENT                                                            \
        for (size_t i = 0; i < count; i++) {                                      \
            part a = lefts[2 * i], b = lefts[2 * i + 1];                          \
            part c = rights[2 * i], d = rights[2 * i + 1];                        \
            results[2 * i] = a * c - b * d;                                       \
            results[2 * i + 1] = a * d + b * c;                                   \
        }                                                                         \
    }

DL_COMPLEX_LOOPS(complex64, float, float32)
DL_COMPLEX_LOOPS(complex128, double, float64)

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
