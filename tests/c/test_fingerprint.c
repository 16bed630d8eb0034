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
                                         .count = 1000,
                                         .dtype = DL_FLOAT32,
                                         .reduce_op = DL_SUM}),
               "all_reduce(1000 x float32, SUM)");
    CHECK_TEXT(describe((dl_fingerprint){
                   .op = DL_BROADCAST, .count = 3, .dtype = DL_INT64, .root = 7}),
               "broadcast(3 x int64, from rank 7)");
    CHECK_TEXT(
        describe((dl_fingerprint){.op = DL_BROADCAST, .count = 3, .item_size = 12}),
        "broadcast(3 x 12 bytes, from rank 0)");
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
    dl_fingerprint long_one = {.op = DL_ALL_REDUCE,
                               .count = UINT64_MAX,
                               .dtype = DL_FLOAT8_E4M3FN,
                               .reduce_op = DL_PREMUL_SUM};
    char text[8];

    CHECK(strlen(describe(long_one)) + 1 < DL_FINGERPRINT_TEXT_SIZE);
    dl_fingerprint_describe(&long_one, text, sizeof text);
    CHECK_TEXT(text, "all_red");
}

CHECK_CASE(every_field_is_compared)
{
    dl_fingerprint one = {.count = 5, .op = 1, .dtype = 12, .root = 3};

    CHECK_EQUAL(sizeof one, 16);
    for (size_t i = 0; i < sizeof one; i++) {
        dl_fingerprint other = one;
        CHECK(dl_fingerprint_equal(&one, &other));
        ((uint8_t *)&other)[i] ^= 0x10;
        CHECK(!dl_fingerprint_equal(&one, &other));
    }
}
