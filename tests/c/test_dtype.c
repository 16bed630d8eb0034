/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "tensor/dtype.h"

CHECK_CASE(names_and_sizes_are_numpys)
{
    CHECK_TEXT(dl_dtype_name(DL_BOOL), "bool");
    CHECK_TEXT(dl_dtype_name(DL_INT32), "int32");
    CHECK_TEXT(dl_dtype_name(DL_FLOAT8_E5M2), "float8_e5m2");
    CHECK_EQUAL(dl_dtype_size(DL_BOOL), 1);
    CHECK_EQUAL(dl_dtype_size(DL_UINT16), 2);
    CHECK_EQUAL(dl_dtype_size(DL_BFLOAT16), 2);
    CHECK_EQUAL(dl_dtype_size(DL_COMPLEX64), 8);
    CHECK_EQUAL(dl_dtype_size(DL_COMPLEX128), 16);
}

CHECK_CASE(every_dtype_has_an_entry)
{
    for (int i = 0; i < DL_DTYPE_COUNT; i++) {
        CHECK(dl_dtype_name((dl_dtype)i) != NULL);
        CHECK((dl_dtype_size((dl_dtype)i) == 0) == (i == DL_OPAQUE));
    }
}

CHECK_CASE(integers_include_bool_and_no_float)
{
    for (int i = DL_BOOL; i <= DL_UINT64; i++) {
        CHECK(dl_dtype_is_integer((dl_dtype)i));
    }
    for (int i = DL_FLOAT16; i < DL_DTYPE_COUNT; i++) {
        CHECK(!dl_dtype_is_integer((dl_dtype)i));
    }
    CHECK(!dl_dtype_is_integer(DL_OPAQUE));
}

CHECK_CASE(numbers_out_of_range_are_unknown)
{
    CHECK_TEXT(dl_dtype_name((dl_dtype)200), "unknown dtype");
    CHECK_TEXT(dl_dtype_name((dl_dtype)-1), "unknown dtype");
    CHECK_EQUAL(dl_dtype_size(DL_DTYPE_COUNT), 0);
}
