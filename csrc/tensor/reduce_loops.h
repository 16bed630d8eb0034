/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels, each written once as a plain loop, which the compiler vectorises for the
 * instruction set of the including file.  That file defines DL_KERNEL(name), hence no
 * include guard.  Requires -O3: at -O2 gcc leaves the loops scalar. */
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

/* Conversion of short floating-point types to float32 and back, rounding to nearest
 * even.  Uses no conversion instructions, so that every processor gives the same bits
 * and the loops can be vectorised for every instruction set.
 *
 * The bit patterns of floats, read as integers, are ordered by magnitude, and the
 * fields of both formats have the same order.  So a value is converted by shifting its
 * mantissa into place and adding the difference of the exponent biases.  Subnormals of
 * the short type have no implicit leading one: they are aligned by adding (or
 * subtracting) a power of two, so that the processor's own rounding does the work. */
static inline uint32_t
DL_KERNEL(bits_of)(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float
DL_KERNEL(float_of)(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define DL_CONVERT_LOOPS(name, storage)                                             \
    static void DL_KERNEL(widen_##name)(float *target, const void *source,          \
                                        size_t count)                               \
    {                                                                               \
        const storage *values = source;                                             \
        for (size_t i = 0; i < count; i++) {                                        \
            target[i] = DL_KERNEL(float_of)(DL_KERNEL(widened_##name)(values[i]));  \
        }                                                                           \
    }                                                                               \
    static void DL_KERNEL(narrow_##name)(void *target, const float *source,         \
                                         size_t count)                              \
    {                                                                               \
        storage *values = target;                                                   \
        for (size_t i = 0; i < count; i++) {                                        \
            values[i] =                                                             \
                (storage)DL_KERNEL(narrowed_##name)(DL_KERNEL(bits_of)(source[i])); \
        }                                                                           \
    }

/* A format with `mantissa` bits, the exponent bias `bias` and the sign bit on top.
 * `nan`: the bits of a NaN.  `infinity`: the bits of infinity, or `nan` in a format
 * without it.  `top`: the bits, as a float, of the smallest magnitude that overflows
 * before rounding. */
#define DL_SHORT_FLOAT(name, storage, mantissa, bias, infinity, nan, top)              \
    static inline uint32_t DL_KERNEL(widened_##name)(uint32_t value)                   \
    {                                                                                  \
        const uint32_t sign_bit = UINT32_C(1) << (8 * sizeof(storage) - 1);            \
        uint32_t sign = (value & sign_bit) << (32 - 8 * sizeof(storage));              \
        uint32_t size = value & (sign_bit - 1);                                        \
        uint32_t moved = (size << (23 - mantissa)) + ((127u - bias) << 23);            \
        /* Subnormals: an implicit one is added and then subtracted. */                \
        float small = DL_KERNEL(float_of)(moved + (UINT32_C(1) << 23))                 \
                      - DL_KERNEL(float_of)((128u - bias) << 23);                      \
        uint32_t bits = size >> mantissa == 0 ? DL_KERNEL(bits_of)(small) : moved;     \
        bits = size >= infinity ? UINT32_C(0x7f800000) : bits;                         \
        bits = size > infinity || size == nan ? UINT32_C(0x7fc00000) : bits;           \
        return sign | bits;                                                            \
    }                                                                                  \
    static inline uint32_t DL_KERNEL(narrowed_##name)(uint32_t bits)                   \
    {                                                                                  \
        const uint32_t align = (127u - bias + 23 - mantissa + 1) << 23;                \
        uint32_t sign = (bits >> 31) << (8 * sizeof(storage) - 1);                     \
        uint32_t size = bits & UINT32_C(0x7fffffff);                                   \
        uint32_t is_odd = (size >> (23 - mantissa)) & 1;                               \
        uint32_t half = (UINT32_C(1) << (22 - mantissa)) - 1;                          \
        uint32_t moved =                                                               \
            (size - ((127u - bias) << 23) + half + is_odd) >> (23 - mantissa);         \
        uint32_t small =                                                               \
            DL_KERNEL(bits_of)(DL_KERNEL(float_of)(size) + DL_KERNEL(float_of)(align)) \
            - align;                                                                   \
        uint32_t value = size < (128u - bias) << 23 ? small : moved;                   \
        value = size >= top || value > infinity ? infinity : value;                    \
        value = size > UINT32_C(0x7f800000) ? nan : value;                             \
        return sign | value;                                                           \
    }                                                                                  \
    DL_CONVERT_LOOPS(name, storage)

/* The first magnitude past the range is 65536 for float16 and e5m2.  e4m3fn ends at
 * 448: a value that would round to 480 becomes NaN, since NaN has those bits. */
DL_SHORT_FLOAT(float16, uint16_t, 10, 15, 0x7c00u, 0x7e00u, UINT32_C(0x47800000))
DL_SHORT_FLOAT(float8_e5m2, uint8_t, 2, 15, 0x7cu, 0x7eu, UINT32_C(0x47800000))
DL_SHORT_FLOAT(float8_e4m3fn, uint8_t, 3, 7, 0x7fu, 0x7fu, UINT32_C(0x43f00000))

/* A bfloat16 is the upper half of a float32. */
static inline uint32_t
DL_KERNEL(widened_bfloat16)(uint32_t value)
{
    return value << 16;
}

static inline uint32_t
DL_KERNEL(narrowed_bfloat16)(uint32_t bits)
{
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    bool is_nan = (bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000);

    return is_nan ? (bits >> 16) | 0x40 : rounded;
}

DL_CONVERT_LOOPS(bfloat16, uint16_t)

/* MIN and MAX.  In a plain ternary, which is one instruction, the result depends on the
 * order of the operands if one is NaN, or if they are zeros of different signs.  Here
 * any NaN gives the same NaN, and the bits of equal values are combined: of two zeros,
 * MIN takes the negative one and MAX the positive one.  Written with masks, since
 * compilers turn conditions into branches before they vectorise. */
#define DL_PICK(name, type, bits, than, join)                      \
    static inline type DL_KERNEL(name)(type a, type b)             \
    {                                                              \
        type picked = a than b ? a : b, nan = (type)NAN;           \
        bits result, a_bits, nan_bits;                             \
        bits is_equal = (bits)0 - (bits)(a == b);                  \
        bits is_nan = (bits)0 - (bits)__builtin_isunordered(a, b); \
        memcpy(&result, &picked, sizeof picked);                   \
        memcpy(&a_bits, &a, sizeof a);                             \
        memcpy(&nan_bits, &nan, sizeof nan);                       \
        result = join(result, a_bits, is_equal);                   \
        result = (result & ~is_nan) | (nan_bits & is_nan);         \
        memcpy(&picked, &result, sizeof result);                   \
        return picked;                                             \
    }
#define DL_JOIN_ANY(result, others, mask) ((result) | ((others) & (mask)))
#define DL_JOIN_ALL(result, others, mask) ((result) & ((others) | ~(mask)))

#define DL_FLOAT_LOOPS(name, type, bits)                                          \
    DL_PICK(lesser_##name, type, bits, <, DL_JOIN_ANY)                            \
    DL_PICK(greater_##name, type, bits, >, DL_JOIN_ALL)                           \
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

/* A product that is rounded before it is added.  -ffp-contract=off alone does not
 * ensure that: gcc's vectoriser still fuses sums and differences of products into
 * vfmaddsub where the instruction set has it, so that ranks with another instruction
 * set get other bits. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_assoc_barrier)
#define DL_ROUNDED(product) __builtin_assoc_barrier(product)
#endif
#endif
#if !defined(DL_ROUNDED)
#define DL_ROUNDED(product) (product)
#endif

/* The sum of complex numbers is the sum of their parts. */
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
            results[2 * i] = DL_ROUNDED(a * c) - DL_ROUNDED(b * d);               \
            results[2 * i + 1] = DL_ROUNDED(a * d) + DL_ROUNDED(b * c);           \
        }                                                                         \
    }

DL_COMPLEX_LOOPS(complex64, float, float32)
DL_COMPLEX_LOOPS(complex128, double, float64)

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
