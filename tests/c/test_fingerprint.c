/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "pg/fingerprint.h"

static const char *
describe(dl_fingerprint fingerprint)
{
    static char text[DL_FINGERPRINT_TEXT_SIZE];

    dl_fingerprint_describe(&fingerprint, text, sizeof text);
    return text;
}

CHECK_CASE(descriptions_name_what_matters)
{
    CHECK_TEXT(describe((dl_fingerprint){.op = DL_ALL_REDUCE,
                                         .count_low = 1000,
                                         .dtype = DL_FLOAT32,
                                         .detail = DL_SUM}),
               "all_reduce(1000 x float32, SUM)");
    CHECK_TEXT(describe((dl_fingerprint){
                   .op = DL_BROADCAST, .count_low = 3, .dtype = DL_INT64, .root = 7}),
               "broadcast(3 x int64, from rank 7)");
    CHECK_TEXT(
        describe((dl_fingerprint){.op = DL_BROADCAST,
                                  .count_low = 3,
                                  .detail = dl_opaque_code(DL_OPAQUE_BYTES, 12)}),
        "broadcast(3 x S12, from rank 0)");
    CHECK_TEXT(describe((dl_fingerprint){.op = DL_BROADCAST, .detail = 0x80000000}),
               "broadcast(0 x another dtype (#80000000), from rank 0)");
    CHECK_TEXT(describe((dl_fingerprint){.op = DL_BARRIER}), "barrier()");
}

CHECK_CASE(any_numbers_are_described)
{
    dl_fingerprint wild;

    for (int byte = 0; byte < 256; byte++) {
        memset(&wild, byte, sizeof wild);
        CHECK(strlen(describe(wild)) + 1 < DL_FINGERPRINT_TEXT_SIZE);
    }
    CHECK_TEXT(dl_op_type_name(250), "unknown operation");
}

CHECK_CASE(a_description_never_outgrows_its_room)
{
    dl_fingerprint long_one = {
        .op = DL_REDUCE_SCATTER_V, .root = UINT32_MAX, .detail = 0};
    dl_opaque_text dtype = {0};
    char text[8];

    dl_fingerprint_set_count(&long_one, UINT64_MAX);
    for (int i = 0; i < DL_DTYPE_TEXT_SIZE; i++) {
        dl_opaque_put(&dtype, "x");
    }
    long_one.detail = dl_opaque_code_of_text(&dtype);
    CHECK(strlen(describe(long_one)) + 1 < DL_FINGERPRINT_TEXT_SIZE);
    dl_fingerprint_describe(&long_one, text, sizeof text);
    CHECK_TEXT(text, "reduce_");
}

CHECK_CASE(every_field_is_compared)
{
    dl_fingerprint one = {.count_low = 5, .op = 1, .dtype = 12, .root = 3};

    CHECK_EQUAL(sizeof one, 16);
    for (size_t i = 0; i < sizeof one; i++) {
        dl_fingerprint other = one;
        CHECK(dl_fingerprint_equal(&one, &other));
        ((uint8_t *)&other)[i] ^= 0x10;
        CHECK(!dl_fingerprint_equal(&one, &other));
    }
}

CHECK_CASE(counts_have_48_bits)
{
    static const uint64_t counts[] = {0, 1, UINT32_MAX, UINT64_C(1) << 32,
                                      (UINT64_C(1) << 48) - 1};
    dl_fingerprint packed = {.op = DL_ALL_REDUCE, .dtype = DL_INT8};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        dl_fingerprint_set_count(&packed, counts[i]);
        CHECK_EQUAL(dl_fingerprint_count(&packed), counts[i]);
        CHECK(packed.op == DL_ALL_REDUCE && packed.dtype == DL_INT8);
    }
    CHECK_TEXT(describe(packed), "all_reduce(281474976710655 x int8, SUM)");
}

CHECK_CASE(the_detail_is_a_reduction_or_a_dtype)
{
    dl_fingerprint number = {.dtype = DL_INT32, .detail = DL_MAX};
    dl_fingerprint opaque = {.dtype = DL_OPAQUE,
                             .detail = dl_opaque_code(DL_OPAQUE_VOID, DL_MAX)};

    CHECK_EQUAL(dl_fingerprint_reduce_op(&number), DL_MAX);
    CHECK_EQUAL(dl_fingerprint_reduce_op(&opaque), 0);
}
