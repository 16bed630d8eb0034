/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Conversion of short floating-point types to float32 and back, rounding to nearest
 * even.  Uses no conversion instructions, so that every processor gives the same bits
 * and the loops can be vectorised for every instruction set.  Included like
 * reduce_loops.h, hence no include guard.
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

#undef DL_CONVERT_LOOPS
#undef DL_SHORT_FLOAT
