/* SPDX-License-Identifier: BSD-3-Clause */
#include <float.h>
#include <math.h>

#include "check.h"
#include "tensor/reduce_table.h"

/* A format, by its definition. */
typedef struct format {
    dl_dtype dtype;
    int mantissa;
    int bias;
    uint32_t infinity; /* 0: has none */
    uint32_t last;     /* bits of the largest finite value */
} format;

static const format formats[] = {
    {DL_FLOAT16, 10, 15, 0x7c00, 0x7bff},
    {DL_BFLOAT16, 7, 127, 0x7f80, 0x7f7f},
    {DL_FLOAT8_E4M3FN, 3, 7, 0, 0x7e},
    {DL_FLOAT8_E5M2, 2, 15, 0x7c, 0x7b},
};

#define FORMAT_COUNT (sizeof formats / sizeof *formats)

static double
value_of(const format *format, uint32_t bits)
{
    int exponent = (int)(bits >> format->mantissa);
    uint32_t mantissa = bits & ((1u << format->mantissa) - 1);
    uint32_t one = 1u << format->mantissa;

    return exponent == 0
               ? ldexp(mantissa, 1 - format->bias - format->mantissa)
               : ldexp(one + mantissa, exponent - format->bias - format->mantissa);
}

static uint32_t
sign_bit_of(const format *format)
{
    return 1u << (8 * dl_dtype_size(format->dtype) - 1);
}

static float
widen_one(const dl_reduce_table *table, const format *format, uint32_t bits)
{
    uint16_t cell = (uint16_t)bits; /* its first byte is the low one */
    float value;

    table->widen[format->dtype](&value, &cell, 1);
    return value;
}

static uint32_t
narrow_one(const dl_reduce_table *table, const format *format, double value)
{
    float exact = (float)value;
    uint16_t cell = 0;

    table->narrow[format->dtype](&cell, &exact, 1);
    return cell;
}

static void
check_finite_values(const dl_reduce_table *table, const format *format)
{
    for (uint32_t bits = 0; bits <= format->last; bits++) {
        double value = value_of(format, bits);
        CHECK(widen_one(table, format, bits) == value);
        CHECK_EQUAL(narrow_one(table, format, value), bits);
        CHECK(widen_one(table, format, bits | sign_bit_of(format)) == -value);
        CHECK_EQUAL(narrow_one(table, format, -value), bits | sign_bit_of(format));
    }
}

/* Half way goes to the even neighbour, anything beside it to the nearer one. */
static void
check_rounding(const dl_reduce_table *table, const format *format)
{
    for (uint32_t bits = 0; bits < format->last; bits++) {
        double low = value_of(format, bits);
        double middle = (low + value_of(format, bits + 1)) / 2;
        uint32_t even = bits % 2 == 0 ? bits : bits + 1;
        if ((double)(float)middle != middle) {
            continue; /* below what float32 can tell apart */
        }
        CHECK_EQUAL(narrow_one(table, format, middle), even);
        CHECK_EQUAL(narrow_one(table, format, nextafterf((float)middle, 0)), bits);
        CHECK_EQUAL(narrow_one(table, format, nextafterf((float)middle, INFINITY)),
                    bits + 1);
    }
}

static void
check_ends(const dl_reduce_table *table, const format *format)
{
    uint32_t beyond = format->last + 1;
    double step = value_of(format, format->last) - value_of(format, format->last - 1);
    double edge = value_of(format, format->last) + step / 2;

    /* Past the last value there is infinity, or NaN where there is no infinity. */
    CHECK_EQUAL(narrow_one(table, format, nextafterf((float)edge, INFINITY)), beyond);
    CHECK_EQUAL(narrow_one(table, format, nextafterf((float)edge, 0)), format->last);
    CHECK_EQUAL(narrow_one(table, format, FLT_MAX), beyond);
    CHECK_EQUAL(narrow_one(table, format, INFINITY), beyond);
    CHECK_EQUAL(narrow_one(table, format, -INFINITY), beyond | sign_bit_of(format));
    CHECK(isnan(widen_one(table, format, narrow_one(table, format, NAN))));
    CHECK(isnan(widen_one(table, format, narrow_one(table, format, -NAN))));
    if (format->infinity != 0) {
        CHECK(widen_one(table, format, format->infinity) == INFINITY);
        CHECK(widen_one(table, format, format->infinity | sign_bit_of(format))
              == -INFINITY);
    }
    for (uint32_t bits = format->infinity + 1; bits < sign_bit_of(format); bits++) {
        if (bits > format->last && bits != format->infinity) {
            CHECK(isnan(widen_one(table, format, bits)));
        }
    }
}

static void
check_table(dl_simd simd)
{
    const dl_reduce_table *table = dl_reduce_table_of(simd);

    if (!dl_cpu_has(simd)) {
        return;
    }
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        check_finite_values(table, &formats[i]);
        check_rounding(table, &formats[i]);
        check_ends(table, &formats[i]);
    }
}

CHECK_CASE(base_converts_every_value)
{
    check_table(DL_SIMD_BASE);
}

CHECK_CASE(avx2_converts_every_value)
{
    check_table(DL_SIMD_AVX2);
}

CHECK_CASE(avx512_converts_every_value)
{
    check_table(DL_SIMD_AVX512);
}

/* One by one takes the scalar end of a loop; runs take its vectors too. */
CHECK_CASE(runs_convert_as_single_values_do)
{
    static uint16_t shorts[1 << 16];
    static uint16_t back[1 << 16];
    static float floats[1 << 16];
    const format *half = &formats[0];

    for (uint32_t i = 0; i < 1 << 16; i++) {
        shorts[i] = (uint16_t)i;
    }
    dl_reduce_widen(floats, half->dtype, shorts, 1 << 16);
    dl_reduce_narrow(back, half->dtype, floats, 1 << 16);
    for (uint32_t i = 0; i < 1 << 16; i++) {
        float alone = widen_one(&dl_reduce_table_base, half, i);
        CHECK(isnan(alone) ? isnan(floats[i]) : alone == floats[i]);
        CHECK(isnan(alone) || back[i] == i);
    }
}

CHECK_CASE(scaling_rounds_once)
{
    /* 3 times 0x1.004p0 is 0x1.806p1: between two halves, nearer to the upper. */
    uint16_t value = 0x3c01;
    uint16_t scaled;

    dl_reduce_scale(&scaled, DL_FLOAT16, &value, 1, 3.0);
    CHECK_EQUAL(scaled, 0x4202);
    double pair[2] = {1.5, -2.0};
    dl_reduce_scale(pair, DL_COMPLEX128, pair, 1, 2.0);
    CHECK(pair[0] == 3.0 && pair[1] == -4.0);
}
