/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/reduce.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tensor/reduce_table.h"

/* Elements converted at a time: their 8 KiB are a quarter of a first-level cache. */
#define SCALE_TILE 2048

static const char *const op_names[DL_REDUCE_OP_COUNT] = {
    [DL_SUM] = "SUM",       [DL_AVG] = "AVG",       [DL_PRODUCT] = "PRODUCT",
    [DL_MIN] = "MIN",       [DL_MAX] = "MAX",       [DL_BAND] = "BAND",
    [DL_BOR] = "BOR",       [DL_BXOR] = "BXOR",     [DL_PREMUL_SUM] = "PREMUL_SUM",
    [DL_MINLOC] = "MINLOC", [DL_MAXLOC] = "MAXLOC", [DL_FUNCTION] = "a function",
};

const char *
dl_reduce_op_name(dl_reduce_op op)
{
    const char *name = (unsigned)op < DL_REDUCE_OP_COUNT ? op_names[op] : NULL;

    return name == NULL ? "unknown reduce op" : name;
}

static const char *const simd_names[DL_SIMD_COUNT] = {
    [DL_SIMD_BASE] = "base",
    [DL_SIMD_AVX2] = "avx2",
    [DL_SIMD_AVX512] = "avx512",
};

bool
dl_cpu_has(dl_simd simd)
{
#if defined(__x86_64__)
    if (simd == DL_SIMD_AVX2) {
        return __builtin_cpu_supports("avx2");
    }
    if (simd == DL_SIMD_AVX512) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
               && __builtin_cpu_supports("avx512dq")
               && __builtin_cpu_supports("avx512vl");
    }
#endif
    return simd == DL_SIMD_BASE;
}

static dl_simd
widest_simd(void)
{
    for (int simd = DL_SIMD_COUNT - 1; simd > DL_SIMD_BASE; simd--) {
        if (dl_cpu_has((dl_simd)simd)) {
            return (dl_simd)simd;
        }
    }
    return DL_SIMD_BASE;
}

dl_simd
dl_cpu_choose(void)
{
    const char *asked = getenv("DISTLITE_SIMD");

    if (asked == NULL || *asked == '\0') {
        return widest_simd();
    }
    for (int simd = 0; simd < DL_SIMD_COUNT; simd++) {
        if (strcmp(asked, simd_names[simd]) == 0 && dl_cpu_has((dl_simd)simd)) {
            return (dl_simd)simd;
        }
    }
    dl_log(DL_LOG_WARNING,
           "DISTLITE_SIMD=%s is unknown or not supported by this processor; %s", asked,
           "the choices are base, avx2 and avx512");
    return widest_simd();
}

const dl_reduce_table *
dl_reduce_table_of(dl_simd simd)
{
#if defined(__x86_64__)
    static const dl_reduce_table *const tables[DL_SIMD_COUNT] = {
        [DL_SIMD_BASE] = &dl_reduce_table_base,
        [DL_SIMD_AVX2] = &dl_reduce_table_avx2,
        [DL_SIMD_AVX512] = &dl_reduce_table_avx512,
    };
    return tables[simd];
#else
    return simd == DL_SIMD_BASE ? &dl_reduce_table_base : NULL;
#endif
}

/* Two threads may make the first choice at once; both choose the same table. */
static const dl_reduce_table *
chosen_table(void)
{
    static _Atomic(const dl_reduce_table *) chosen;
    const dl_reduce_table *table = atomic_load_explicit(&chosen, memory_order_acquire);

    if (table == NULL) {
        table = dl_reduce_table_of(dl_cpu_choose());
        atomic_store_explicit(&chosen, table, memory_order_release);
    }
    return table;
}

dl_status
dl_reduce_check(dl_reduce_op op, const dl_tensor *tensor, const char *caller)
{
    dl_dtype dtype = tensor->dtype;
    char name[DL_DTYPE_TEXT_SIZE];

    if ((unsigned)op >= DL_REDUCE_OP_COUNT || (unsigned)dtype >= DL_DTYPE_COUNT) {
        return dl_fail(DL_INVALID, "reduce op %d of dtype %d does not exist", (int)op,
                       (int)dtype);
    }
    /* With 3 bits of mantissa or fewer, a product over many ranks is meaningless. */
    bool is_lost = op == DL_PRODUCT && dl_dtype_size(dtype) == 1
                   && dl_reduce_dtype(dtype) == DL_FLOAT32;
    if (dl_reduce_kernel(op, dl_reduce_dtype(dtype)) != NULL && !is_lost) {
        return DL_OK;
    }
    dl_dtype_describe(dtype, tensor->opaque_code, name);
    if (op == DL_AVG && dl_dtype_is_integer(dtype)) {
        return dl_fail(DL_INVALID,
                       "AVG of %s: the mean of integers is not an integer; use SUM, or "
                       "a floating-point dtype",
                       name);
    }
    bool is_bitwise = op == DL_BAND || op == DL_BOR || op == DL_BXOR;
    return dl_fail(DL_INVALID, "%s does not support %s of %s%s", caller,
                   dl_reduce_op_name(op), name,
                   is_bitwise ? ", only of integers and bool" : "");
}

dl_dtype
dl_reduce_dtype(dl_dtype dtype)
{
    return chosen_table()->widen[dtype] == NULL ? dtype : DL_FLOAT32;
}

dl_reduce_fn
dl_reduce_kernel(dl_reduce_op op, dl_dtype dtype)
{
    return chosen_table()->reduce[op][dtype];
}

void
dl_reduce_widen(float *target, dl_dtype dtype, const void *source, size_t count)
{
    chosen_table()->widen[dtype](target, source, count);
}

void
dl_reduce_narrow(void *target, dl_dtype dtype, const float *source, size_t count)
{
    chosen_table()->narrow[dtype](target, source, count);
}

void
dl_reduce_divide(void *target, dl_dtype dtype, size_t count, int divisor)
{
    chosen_table()->divide[dtype](target, count, divisor);
}

static void
scale_short(void *target, dl_dtype dtype, const void *source, size_t count,
            double factor)
{
    const dl_reduce_table *table = chosen_table();
    size_t item_size = dl_dtype_size(dtype);
    float tile[SCALE_TILE];

    for (size_t at = 0; at < count; at += SCALE_TILE) {
        size_t part = count - at < SCALE_TILE ? count - at : SCALE_TILE;
        size_t offset = at * item_size;
        table->widen[dtype](tile, (const char *)source + offset, part);
        table->scale[DL_FLOAT32](tile, tile, part, factor);
        table->narrow[dtype]((char *)target + offset, tile, part);
    }
}

void
dl_reduce_scale(void *target, dl_dtype dtype, const void *source, size_t count,
                double factor)
{
    if (dl_reduce_dtype(dtype) != dtype) {
        scale_short(target, dtype, source, count, factor);
    } else {
        chosen_table()->scale[dtype](target, source, count, factor);
    }
}
