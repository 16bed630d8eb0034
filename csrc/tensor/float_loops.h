/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels for floats and complex numbers.  A part of reduce_loops.h, which defines
 * DL_LOOP and DL_KERNEL; hence no include guard. */

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
