/* SPDX-License-Identifier: BSD-3-Clause */
#include <float.h>
#include <math.h>
#include <stdint.h>

#include "check.h"
#include "tensor/reduce_table.h"

/* Three of the widest vectors of bytes and one element: all tails occur. */
#define MOST_ELEMENTS (3 * 64 + 1)
#define MOST_OFFSET 3

typedef union cell {
    uint8_t bytes[8];
    float f32;
    double f64;
    int64_t i64;
    uint64_t u64;
} cell;

static const double special[] = {
    0.0,   -0.0,   1.0, -1.0,  NAN,     INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN,
    1e-45, -1e-45, 3.5, -2.25, DBL_MAX, DBL_MIN,  -DBL_MAX,  0.1,     16777217, -0.3,
};

static bool
is_complex(dl_dtype dtype)
{
    return dtype == DL_COMPLEX64 || dtype == DL_COMPLEX128;
}

static dl_dtype
part_of(dl_dtype dtype)
{
    return dtype == DL_COMPLEX64 ? DL_FLOAT32 : DL_FLOAT64;
}

/* Values whose sums and products overflow, and every special float beside every other
 * in the course of a run. */
static void
fill(void *memory, dl_dtype dtype, size_t count, unsigned step)
{
    size_t kinds = sizeof special / sizeof *special;

    if (is_complex(dtype)) {
        fill(memory, part_of(dtype), 2 * count, step);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        double value = special[(i * step + step) % kinds];
        uint64_t bits = (i + step) * UINT64_C(0x9e3779b97f4a7c15) * step;
        size_t size = dl_dtype_size(dtype);
        cell value_cell = {.u64 = bits};
        if (i % 7 == 0) {
            value_cell.u64 = UINT64_C(0x8000800080008000) - (step & 1);
        }
        if (dtype == DL_FLOAT32) {
            value_cell.f32 = (float)value;
        } else if (dtype == DL_FLOAT64) {
            value_cell.f64 = value;
        }
        memcpy((char *)memory + i * size, value_cell.bytes, size);
    }
}

typedef struct operands {
    _Alignas(64) uint8_t left[16 * (MOST_ELEMENTS + MOST_OFFSET)];
    _Alignas(64) uint8_t right[16 * (MOST_ELEMENTS + MOST_OFFSET)];
    _Alignas(64) uint8_t expected[16 * (MOST_ELEMENTS + MOST_OFFSET) + 64];
    _Alignas(64) uint8_t got[16 * (MOST_ELEMENTS + MOST_OFFSET) + 64];
} operands;

static bool
is_same(dl_dtype dtype, const void *left, const void *right)
{
    if (dtype == DL_FLOAT32) {
        float a, b;
        memcpy(&a, left, sizeof a);
        memcpy(&b, right, sizeof b);
        if (isnan(a) || isnan(b)) {
            return isnan(a) && isnan(b);
        }
    }
    if (dtype == DL_FLOAT64) {
        double a, b;
        memcpy(&a, left, sizeof a);
        memcpy(&b, right, sizeof b);
        if (isnan(a) || isnan(b)) {
            return isnan(a) && isnan(b);
        }
    }
    return memcmp(left, right, dl_dtype_size(dtype)) == 0;
}

static bool
is_same_or_parts_are(dl_dtype dtype, const uint8_t *left, const uint8_t *right)
{
    if (!is_complex(dtype)) {
        return is_same(dtype, left, right);
    }
    dl_dtype part = part_of(dtype);
    size_t size = dl_dtype_size(part);
    return is_same(part, left, right) && is_same(part, left + size, right + size);
}

/* Sums of NaNs may keep either payload; all else agrees to the bit. */
static void
check_same(dl_dtype dtype, const operands *all, size_t count, const char *what)
{
    size_t size = dl_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        if (!is_same_or_parts_are(dtype, all->expected + i * size,
                                  all->got + i * size)) {
            DL_CHECK_FAIL("%s of %s: element %zu of %zu differs", what,
                          dl_dtype_name(dtype), i, count);
        }
    }
}

static void
check_kernel(dl_reduce_op op, dl_dtype dtype, dl_reduce_fn base, dl_reduce_fn kernel)
{
    static operands all;
    size_t size = dl_dtype_size(dtype);

    for (size_t count = 0; count <= MOST_ELEMENTS; count++) {
        for (size_t offset = 0; offset <= MOST_OFFSET; offset++) {
            const uint8_t *left = all.left + offset * size;
            const uint8_t *right = all.right + (offset * 2 % 3) * size;
            memset(all.got, 0xee, sizeof all.got);
            fill(all.left, dtype, MOST_ELEMENTS + MOST_OFFSET, 3);
            fill(all.right, dtype, MOST_ELEMENTS + MOST_OFFSET, 7);
            base(all.expected, left, right, count);
            kernel(all.got, left, right, count);
            check_same(dtype, &all, count, dl_reduce_op_name(op));
            CHECK_EQUAL(all.got[count * size], 0xee);
            /* In place of either side. */
            memcpy(all.got, left, count * size);
            kernel(all.got, all.got, right, count);
            check_same(dtype, &all, count, dl_reduce_op_name(op));
            memcpy(all.got, right, count * size);
            kernel(all.got, left, all.got, count);
            check_same(dtype, &all, count, dl_reduce_op_name(op));
        }
    }
}

static void
check_simd(dl_simd simd)
{
    const dl_reduce_table *table = dl_reduce_table_of(simd);
    int kernels = 0;

    if (!dl_cpu_has(simd)) {
        return;
    }
    for (int op = 0; op < DL_REDUCE_OP_COUNT; op++) {
        for (int dtype = 0; dtype < DL_DTYPE_COUNT; dtype++) {
            dl_reduce_fn base = dl_reduce_table_base.reduce[op][dtype];
            CHECK((table->reduce[op][dtype] != NULL) == (base != NULL));
            if (base != NULL) {
                kernels++;
                check_kernel((dl_reduce_op)op, (dl_dtype)dtype, base,
                             table->reduce[op][dtype]);
            }
        }
    }
    CHECK(kernels > 40);
}

/* The parts of products of these have more bits than a float or double. */
static void
check_complex_products(dl_simd simd)
{
    enum { COUNT = 37 };
    static float lefts[2 * COUNT], rights[2 * COUNT], results[2 * COUNT];
    static double wide_lefts[2 * COUNT], wide_rights[2 * COUNT],
        wide_results[2 * COUNT];
    const dl_reduce_table *table = dl_reduce_table_of(simd);

    for (int i = 0; i < 2 * COUNT; i++) {
        wide_lefts[i] = 1.0 + 1.0 / (3 + 7 * i);
        wide_rights[i] = 1.0 - 1.0 / (5 + 11 * i);
        lefts[i] = (float)wide_lefts[i];
        rights[i] = (float)wide_rights[i];
    }
    table->reduce[DL_PRODUCT][DL_COMPLEX64](results, lefts, rights, COUNT);
    table->reduce[DL_PRODUCT][DL_COMPLEX128](wide_results, wide_lefts, wide_rights,
                                             COUNT);
    for (int i = 0; i < COUNT; i++) {
        volatile float ac = lefts[2 * i] * rights[2 * i];
        volatile float bd = lefts[2 * i + 1] * rights[2 * i + 1];
        volatile double ad = wide_lefts[2 * i] * wide_rights[2 * i + 1];
        volatile double bc = wide_lefts[2 * i + 1] * wide_rights[2 * i];
        CHECK(results[2 * i] == ac - bd);
        CHECK(wide_results[2 * i + 1] == ad + bc);
    }
}

CHECK_CASE(complex_products_are_rounded_before_they_are_added)
{
    for (int simd = 0; simd < DL_SIMD_COUNT; simd++) {
        if (dl_cpu_has((dl_simd)simd)) {
            check_complex_products((dl_simd)simd);
        }
    }
}

CHECK_CASE(avx2_agrees_with_base)
{
    check_simd(DL_SIMD_AVX2);
}

CHECK_CASE(avx512_agrees_with_base)
{
    check_simd(DL_SIMD_AVX512);
}

static float
float32_of(dl_reduce_op op, float left, float right)
{
    float result = 0;

    dl_reduce_kernel(op, DL_FLOAT32)(&result, &left, &right, 1);
    return result;
}

static double
float64_of(dl_reduce_op op, double left, double right)
{
    double result = 0;

    dl_reduce_kernel(op, DL_FLOAT64)(&result, &left, &right, 1);
    return result;
}

CHECK_CASE(base_computes_what_c_computes)
{
    int32_t left[] = {3, -4, 100};
    int32_t right[] = {5, 6, -7};
    int32_t result[3];

    dl_reduce_table_base.reduce[DL_SUM][DL_INT32](result, left, right, 3);
    CHECK(result[0] == 8 && result[1] == 2 && result[2] == 93);
    dl_reduce_table_base.reduce[DL_PRODUCT][DL_INT32](result, left, right, 3);
    CHECK(result[0] == 15 && result[1] == -24 && result[2] == -700);
    dl_reduce_table_base.reduce[DL_MIN][DL_INT32](result, left, right, 3);
    CHECK(result[0] == 3 && result[1] == -4 && result[2] == -7);
    dl_reduce_table_base.reduce[DL_MAX][DL_INT32](result, left, right, 3);
    CHECK(result[0] == 5 && result[1] == 6 && result[2] == 100);
    dl_reduce_table_base.reduce[DL_BXOR][DL_INT32](result, left, right, 3);
    CHECK(result[0] == 6 && result[1] == (-4 ^ 6) && result[2] == (100 ^ -7));
    CHECK(float32_of(DL_SUM, 1.5f, 2.25f) == 3.75f);
    CHECK(float64_of(DL_PRODUCT, 1.5, -2.0) == -3.0);
    CHECK(float64_of(DL_MIN, 1.5, -2.0) == -2.0);
    CHECK(float32_of(DL_MAX, 1.5f, -2.0f) == 1.5f);
}

CHECK_CASE(min_and_max_are_symmetric_for_nan_and_zero)
{
    size_t kinds = sizeof special / sizeof *special;

    for (size_t i = 0; i < kinds; i++) {
        for (size_t j = 0; j < kinds; j++) {
            for (int op = DL_MIN; op <= DL_MAX; op++) {
                double a = float64_of((dl_reduce_op)op, special[i], special[j]);
                double b = float64_of((dl_reduce_op)op, special[j], special[i]);
                float c =
                    float32_of((dl_reduce_op)op, (float)special[i], (float)special[j]);
                float d =
                    float32_of((dl_reduce_op)op, (float)special[j], (float)special[i]);
                bool has_nan = isnan(special[i]) || isnan(special[j]);
                CHECK(memcmp(&a, &b, sizeof a) == 0);
                CHECK(memcmp(&c, &d, sizeof c) == 0);
                CHECK((bool)isnan(a) == has_nan && (bool)isnan(c) == has_nan);
            }
        }
    }
    CHECK(signbit(float64_of(DL_MIN, 0.0, -0.0)));
    CHECK(!signbit(float32_of(DL_MAX, -0.0f, 0.0f)));
    CHECK(float64_of(DL_MIN, -INFINITY, 3.0) == -INFINITY);
}

CHECK_CASE(integers_wrap)
{
    int64_t left = INT64_MAX;
    int64_t right = 1;
    int64_t result;
    int16_t short_left = 300;
    int16_t short_result;
    uint8_t byte_left = 200;
    uint8_t byte_result;

    dl_reduce_kernel(DL_SUM, DL_INT64)(&result, &left, &right, 1);
    CHECK_EQUAL(result, INT64_MIN);
    dl_reduce_kernel(DL_PRODUCT, DL_INT16)(&short_result, &short_left, &short_left, 1);
    CHECK_EQUAL(short_result, 90000 - 65536);
    dl_reduce_kernel(DL_SUM, DL_UINT8)(&byte_result, &byte_left, &byte_left, 1);
    CHECK_EQUAL(byte_result, 144);
}

CHECK_CASE(avg_adds_and_then_divides)
{
    float sums[] = {3.0f, 4.5f, -6.0f, 0.0f, 1.0f};
    double wide[] = {1.0, -7.0};

    CHECK(dl_reduce_kernel(DL_AVG, DL_FLOAT32) == dl_reduce_kernel(DL_SUM, DL_FLOAT32));
    dl_reduce_divide(sums, DL_FLOAT32, 5, 3);
    CHECK(sums[0] == 1.0f && sums[1] == 1.5f && sums[2] == -2.0f && sums[3] == 0.0f
          && sums[4] == 1.0f / 3.0f);
    dl_reduce_divide(wide, DL_FLOAT64, 2, 2);
    CHECK(wide[0] == 0.5 && wide[1] == -3.5);
}

static dl_status
check_pair(dl_reduce_op op, dl_dtype dtype)
{
    return dl_reduce_check(op, &(dl_tensor){.dtype = dtype}, "scan");
}

CHECK_CASE(pairs_without_a_meaning_are_refused)
{
    dl_tensor times = {.dtype = DL_OPAQUE,
                       .opaque_code = dl_opaque_code(DL_OPAQUE_DATETIME, 1 << 8 | 8)};

    CHECK_OK(check_pair(DL_SUM, DL_FLOAT32));
    CHECK_OK(check_pair(DL_AVG, DL_FLOAT64));
    CHECK_STATUS(check_pair(DL_AVG, DL_INT32), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "AVG of int32");
    CHECK_STATUS(check_pair(DL_SUM, DL_OPAQUE), DL_INVALID);
    CHECK_TEXT(dl_last_error()->text, "scan does not support SUM of bytes");
    CHECK_STATUS(dl_reduce_check(DL_SUM, &times, "scan"), DL_INVALID);
    CHECK_TEXT(dl_last_error()->text, "scan does not support SUM of datetime64[ms]");
    CHECK_STATUS(check_pair(DL_BAND, DL_FLOAT32), DL_INVALID);
    CHECK_STATUS(check_pair((dl_reduce_op)77, DL_FLOAT32), DL_INVALID);
    CHECK_STATUS(check_pair(DL_SUM, (dl_dtype)99), DL_INVALID);
    CHECK_TEXT(dl_reduce_op_name((dl_reduce_op)-1), "unknown reduce op");
}
