/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stddef.h>

#include "check.h"
#include "tensor/reducer.h"

typedef struct pair {
    double value;
    int32_t index;
} pair;

static dl_pair_reducer
reducer_of(bool is_max)
{
    dl_pair layout = {DL_FLOAT64, DL_INT32, offsetof(pair, value),
                      offsetof(pair, index)};
    dl_pair_reducer made;

    CHECK_OK(dl_pair_reducer_init(&made, &layout, sizeof(pair), is_max));
    return made;
}

static pair
combined(bool is_max, pair left, pair right)
{
    dl_pair_reducer reducer = reducer_of(is_max);

    CHECK_OK(reducer.base.combine(&reducer.base, &left, &right, 1));
    return right;
}

CHECK_CASE(pairs_go_by_value_then_by_index)
{
    pair low = {1, 5};
    pair high = {2, 4};
    pair tie = {2, 3};

    CHECK_EQUAL(combined(true, low, high).index, 4);
    CHECK_EQUAL(combined(true, high, low).index, 4);
    CHECK_EQUAL(combined(false, low, high).index, 5);
    CHECK_EQUAL(combined(true, high, tie).index, 3);
    CHECK_EQUAL(combined(true, tie, high).index, 3);
    CHECK_EQUAL(combined(false, high, tie).index, 3);
}

CHECK_CASE(nan_is_beyond_every_number)
{
    pair nan = {NAN, 9};
    pair other_nan = {NAN, 8};
    pair infinite = {INFINITY, 1};

    for (int is_max = 0; is_max < 2; is_max++) {
        CHECK_EQUAL(combined(is_max, nan, infinite).index, 9);
        CHECK_EQUAL(combined(is_max, infinite, nan).index, 9);
        CHECK_EQUAL(combined(is_max, nan, other_nan).index, 8);
        CHECK_EQUAL(combined(is_max, other_nan, nan).index, 8);
    }
}

CHECK_CASE(calls_that_cannot_be_compared_are_refused)
{
    dl_pair bad[] = {{DL_COMPLEX64, DL_INT64, 0, 8},  {DL_OPAQUE, DL_INT64, 0, 8},
                     {DL_FLOAT64, DL_FLOAT32, 0, 8},  {DL_FLOAT64, DL_BOOL, 0, 8},
                     {DL_FLOAT64, DL_INT64, 9, 0},    {DL_FLOAT64, DL_INT64, 0, 9},
                     {DL_DTYPE_COUNT, DL_INT64, 0, 8}};
    dl_pair_reducer made;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(dl_pair_reducer_init(&made, &bad[i], 16, true), DL_INVALID);
    }
}

CHECK_CASE(codes_that_were_made_here_have_a_text)
{
    char text[DL_DTYPE_TEXT_SIZE];
    uint32_t code = dl_reducer_code("float32", "mine");

    dl_reducer_describe(code, text);
    CHECK_TEXT(text, "float32, mine");
    dl_reducer_describe(code + 1, text);
    CHECK(strncmp(text, "another dtype or reduction (#", 29) == 0);
}
