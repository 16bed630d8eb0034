/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/dtype.h"

#include <float.h>

#include "check.h"

static const char *
describe(uint32_t code)
{
    static char text[DL_DTYPE_TEXT_SIZE];

    dl_opaque_describe(code, text);
    return text;
}

static uint32_t
code_of(const char *description)
{
    dl_opaque_text text = {0};

    dl_opaque_put(&text, description);
    return dl_opaque_code_of_text(&text);
}

CHECK_CASE(frequent_dtypes_are_read_back)
{
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_BYTES, 256)), "S256");
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_CHARACTERS, 0)), "U0");
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_VOID, (1 << 24) - 1)), "V16777215");
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_DATETIME, 1 << 8 | 8)),
               "datetime64[ms]");
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_TIMEDELTA, 25 << 8 | 7)),
               "timedelta64[25s]");
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_DATETIME, 1 << 8 | 14)), "datetime64");
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_LONGDOUBLE, LDBL_MANT_DIG)),
               "longdouble");
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_CLONGDOUBLE, 7)),
               "clongdouble with a mantissa of 7 bits");
    CHECK_TEXT(describe(dl_opaque_named("float8_e8m0fnu")), "float8_e8m0fnu");
    CHECK_TEXT(describe(dl_opaque_code(DL_OPAQUE_DLPACK, 2 << 16 | 17 << 8 | 4)),
               "DLPack type 17 of 4 bits in 2 lanes");
    CHECK_EQUAL(dl_opaque_named("float32"), 0);
    CHECK_TEXT(describe(0), "bytes");
}

CHECK_CASE(large_parameters_are_distinguished_and_named)
{
    uint32_t one = dl_opaque_code(DL_OPAQUE_BYTES, 1 << 24);
    uint32_t other = dl_opaque_code(DL_OPAQUE_BYTES, (1 << 24) + 1);
    uint32_t third = dl_opaque_code(DL_OPAQUE_VOID, 1 << 24);

    CHECK(one != other && one != third && other != third);
    CHECK_TEXT(describe(one), "S16777216");
    CHECK_TEXT(describe(third), "V16777216");
}

CHECK_CASE(descriptions_are_remembered)
{
    uint32_t first = code_of("{a: int32 at 0, b: float32 at 4, 8 bytes}");
    uint32_t second = code_of("{b: float32 at 0, a: int32 at 4, 8 bytes}");

    CHECK(first != second);
    CHECK_EQUAL(code_of("{a: int32 at 0, b: float32 at 4, 8 bytes}"), first);
    CHECK_TEXT(describe(first), "{a: int32 at 0, b: float32 at 4, 8 bytes}");
    CHECK_TEXT(describe(second), "{b: float32 at 0, a: int32 at 4, 8 bytes}");
    CHECK_CONTAINS(describe(first ^ 1), "another dtype (#");
}

CHECK_CASE(names_do_not_read_as_syntax)
{
    dl_opaque_text one = {0}, other = {0};

    dl_opaque_put_name(&one, "a: b", 4);
    dl_opaque_put_name(&other, "a", 1);
    dl_opaque_put(&other, ": b");
    CHECK(dl_opaque_code_of_text(&one) != dl_opaque_code_of_text(&other));
    one = other = (dl_opaque_text){0};
    dl_opaque_put_name(&one, "a\0b", 3);
    dl_opaque_put_name(&other, "a\0c", 3);
    CHECK(dl_opaque_code_of_text(&one) != dl_opaque_code_of_text(&other));
    CHECK_TEXT(describe(dl_opaque_code_of_text(&one)), "a?b");
}

CHECK_CASE(long_descriptions_differ_behind_what_is_shown)
{
    dl_opaque_text one = {0}, other = {0};
    char texts[2][DL_DTYPE_TEXT_SIZE];

    for (int i = 0; i < 100; i++) {
        dl_opaque_put(&one, "é ");
        dl_opaque_put(&other, "é ");
    }
    dl_opaque_put_number(&one, 1);
    dl_opaque_put_number(&other, INT64_MIN);
    dl_opaque_describe(dl_opaque_code_of_text(&one), texts[0]);
    dl_opaque_describe(dl_opaque_code_of_text(&other), texts[1]);
    CHECK(strcmp(texts[0], texts[1]) != 0);
    CHECK_CONTAINS(texts[0], "é ... (#");
    CHECK(strlen(texts[0]) < DL_DTYPE_TEXT_SIZE);
}

CHECK_CASE(more_descriptions_than_are_remembered)
{
    for (int64_t i = 0; i < 5000; i++) {
        dl_opaque_text text = {0};
        dl_opaque_put_number(&text, i);
        uint32_t code = dl_opaque_code_of_text(&text);
        CHECK_EQUAL(dl_opaque_code_of_text(&text), code);
        CHECK(describe(code)[0] == 'a' || strtoll(describe(code), NULL, 10) == i);
    }
}

CHECK_CASE(any_code_is_described)
{
    for (uint64_t code = 0; code <= UINT32_MAX; code += 65521) {
        CHECK(strlen(describe((uint32_t)code)) > 0);
    }
}
