/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/reducer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/reduce.h"

uint32_t
dl_reducer_code(const char *dtype, const char *name)
{
    dl_opaque_text text = {0};

    dl_opaque_put(&text, dtype);
    dl_opaque_put(&text, ", ");
    dl_opaque_put(&text, name);
    return dl_opaque_code_of_text(&text);
}

void
dl_reducer_describe(uint32_t code, char text[DL_DTYPE_TEXT_SIZE])
{
    if (code == DL_FUNCTION) {
        snprintf(text, DL_DTYPE_TEXT_SIZE, "bytes, %s", dl_reduce_op_name(DL_FUNCTION));
    } else {
        dl_opaque_describe(code, text);
        if (strncmp(text, "another dtype (", 15) == 0) {
            snprintf(text, DL_DTYPE_TEXT_SIZE,
                     "another dtype or reduction (#%08" PRIx32 ")", code);
        }
    }
}

/* Returns whether the left index is at most the right one.  Only equal values need it,
 * so it may be slow. */
static bool
comes_first(dl_dtype dtype, const uint8_t *left, const uint8_t *right)
{
    size_t size = dl_dtype_size(dtype);
    float low;
    float high;

    if (dl_reduce_dtype(dtype) != dtype) {
        dl_reduce_widen(&low, dtype, left, 1);
        dl_reduce_widen(&high, dtype, right, 1);
        return low <= high;
    }
#define COMPARE(name, type)                      \
    case name: {                                 \
        type values[2];                          \
        memcpy(&values[0], left, sizeof(type));  \
        memcpy(&values[1], right, sizeof(type)); \
        return values[0] <= values[1];           \
    }
    switch (dtype) {
        COMPARE(DL_INT8, int8_t)
        COMPARE(DL_UINT8, uint8_t)
        COMPARE(DL_INT16, int16_t)
        COMPARE(DL_UINT16, uint16_t)
        COMPARE(DL_INT32, int32_t)
        COMPARE(DL_UINT32, uint32_t)
        COMPARE(DL_INT64, int64_t)
        COMPARE(DL_UINT64, uint64_t)
        COMPARE(DL_FLOAT32, float)
        COMPARE(DL_FLOAT64, double)
    default:
        return memcmp(left, right, size) <= 0;
    }
#undef COMPARE
}

/* `order` is positive if the left pair is the better one. */
static void
keep_better(const dl_pair_reducer *self, int order, const uint8_t *left, uint8_t *right)
{
    const dl_pair *pair = &self->pair;

    if (order > 0
        || (order == 0
            && comes_first(pair->index, left + pair->index_offset,
                           right + pair->index_offset))) {
        memcpy(right, left, self->base.unit);
    }
}

#define ORDER(low, high) (((low) > (high)) - ((low) < (high)))

#define PICK(suffix, type, NAN_ORDER)                                              \
    static dl_status pick_##suffix(const dl_reducer *base, const void *left,       \
                                   void *right, size_t count)                      \
    {                                                                              \
        const dl_pair_reducer *self = (const dl_pair_reducer *)(const void *)base; \
        const uint8_t *from = left;                                                \
        uint8_t *to = right;                                                       \
        for (size_t i = 0; i < count; i++, from += base->unit, to += base->unit) { \
            type one;                                                              \
            type other;                                                            \
            memcpy(&one, from + self->pair.value_offset, sizeof one);              \
            memcpy(&other, to + self->pair.value_offset, sizeof other);            \
            int order = self->is_max ? ORDER(one, other) : ORDER(other, one);      \
            keep_better(self, order + NAN_ORDER(one, other), from, to);            \
        }                                                                          \
        return DL_OK;                                                              \
    }

/* A comparison with NaN is 0, so that this alone decides. */
#define NAN_ORDER_FLOAT(one, other) (!!isnan(one) - !!isnan(other))
#define NAN_ORDER_INTEGER(one, other) 0

PICK(bool, uint8_t, NAN_ORDER_INTEGER)
PICK(int8, int8_t, NAN_ORDER_INTEGER)
PICK(int16, int16_t, NAN_ORDER_INTEGER)
PICK(uint16, uint16_t, NAN_ORDER_INTEGER)
PICK(int32, int32_t, NAN_ORDER_INTEGER)
PICK(uint32, uint32_t, NAN_ORDER_INTEGER)
PICK(int64, int64_t, NAN_ORDER_INTEGER)
PICK(uint64, uint64_t, NAN_ORDER_INTEGER)
PICK(float32, float, NAN_ORDER_FLOAT)
PICK(float64, double, NAN_ORDER_FLOAT)

/* float16, bfloat16 and fp8. */
static dl_status
pick_short(const dl_reducer *base, const void *left, void *right, size_t count)
{
    const dl_pair_reducer *self = (const dl_pair_reducer *)(const void *)base;
    const uint8_t *from = left;
    uint8_t *to = right;

    for (size_t i = 0; i < count; i++, from += base->unit, to += base->unit) {
        float one;
        float other;
        dl_reduce_widen(&one, self->pair.value, from + self->pair.value_offset, 1);
        dl_reduce_widen(&other, self->pair.value, to + self->pair.value_offset, 1);
        int order = self->is_max ? ORDER(one, other) : ORDER(other, one);
        keep_better(self, order + NAN_ORDER_FLOAT(one, other), from, to);
    }
    return DL_OK;
}

typedef dl_status (*combine)(const dl_reducer *, const void *, void *, size_t);

static combine
pick_of(dl_dtype dtype)
{
    static const combine picks[DL_DTYPE_COUNT] = {
        [DL_BOOL] = pick_bool,       [DL_INT8] = pick_int8,
        [DL_UINT8] = pick_bool,      [DL_INT16] = pick_int16,
        [DL_UINT16] = pick_uint16,   [DL_INT32] = pick_int32,
        [DL_UINT32] = pick_uint32,   [DL_INT64] = pick_int64,
        [DL_UINT64] = pick_uint64,   [DL_FLOAT32] = pick_float32,
        [DL_FLOAT64] = pick_float64,
    };

    return dl_reduce_dtype(dtype) != dtype ? pick_short : picks[dtype];
}

dl_status
dl_pair_reducer_init(dl_pair_reducer *self, const dl_pair *pair, size_t unit,
                     bool is_max)
{
    const char *name = is_max ? "MAXLOC" : "MINLOC";
    bool is_number = (unsigned)pair->value < DL_DTYPE_COUNT
                     && (unsigned)pair->index < DL_DTYPE_COUNT
                     && pick_of(pair->value) != NULL;
    bool is_index =
        is_number
        && (pair->index == pair->value
            || (dl_dtype_is_integer(pair->index) && pair->index != DL_BOOL));

    if (!is_index || pair->value_offset + dl_dtype_size(pair->value) > unit
        || pair->index_offset + dl_dtype_size(pair->index) > unit) {
        return dl_fail(DL_INVALID, "%s of values of %s with indices of %s is not %s",
                       name, dl_dtype_name(pair->value), dl_dtype_name(pair->index),
                       "supported");
    }
    *self = (dl_pair_reducer){
        .base = {.combine = pick_of(pair->value), .name = name, .unit = unit},
        .pair = *pair,
        .is_max = is_max,
    };
    return DL_OK;
}
