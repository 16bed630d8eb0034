/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "store/counter.h"

static void
check_parse(const char *text, int64_t expected)
{
    int64_t number = -99;

    if (!dl_counter_parse(dl_bytes_of(text), &number) || number != expected) {
        DL_CHECK_FAIL("\"%s\" reads as %lld", text, (long long)number);
    }
}

CHECK_CASE(reads_numbers_as_strtoll_does)
{
    check_parse("5", 5);
    check_parse("-7", -7);
    check_parse("+8", 8);
    check_parse(" \t\n\v\f\r12", 12);
    check_parse("12abc", 12);
    check_parse("0x10", 0);
    check_parse("1e3", 1);
    check_parse("007", 7);
    check_parse("-0", 0);
    check_parse("9223372036854775807", INT64_MAX);
    check_parse("-9223372036854775808", INT64_MIN);
    check_parse("00000000000000000000000001", 1);
}

CHECK_CASE(refuses_what_is_no_number_or_does_not_fit)
{
    static const char *const texts[] = {
        "",    " ",    "abc",
        "-",   "+",    "--1",
        "- 1", "\xb2", "9223372036854775808",
        ".5",  "+-3",  "-9223372036854775809",
        "/",   ":",    "99999999999999999999999",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t number = -99;
        if (dl_counter_parse(dl_bytes_of(texts[i]), &number) || number != -99) {
            DL_CHECK_FAIL("\"%s\" reads as %lld", texts[i], (long long)number);
        }
    }
}

CHECK_CASE(a_number_ends_at_the_end_of_its_bytes)
{
    int64_t number;

    CHECK(dl_counter_parse((dl_bytes){(const uint8_t *)"123456", 3}, &number));
    CHECK_EQUAL(number, 123);
    CHECK(!dl_counter_parse((dl_bytes){(const uint8_t *)"  77", 2}, &number));
    CHECK(!dl_counter_parse((dl_bytes){(const uint8_t *)"-7", 1}, &number));
    CHECK(dl_counter_parse(DL_LITERAL("4\0005"), &number));
    CHECK_EQUAL(number, 4);
}

/* An `add` on a value of megabytes must cost no more than one on a number. */
CHECK_CASE(a_number_ends_within_64_bytes)
{
    uint8_t text[80];
    int64_t number = -99;

    memset(text, ' ', sizeof text);
    text[63] = '7';
    CHECK(dl_counter_parse((dl_bytes){text, 64}, &number));
    CHECK_EQUAL(number, 7);
    CHECK(dl_counter_parse((dl_bytes){text, 80}, &number));
    CHECK_EQUAL(number, 7);
    text[64] = '8';
    CHECK(dl_counter_parse((dl_bytes){text, 64}, &number));
    CHECK(!dl_counter_parse((dl_bytes){text, 80}, &number));
    memset(text, ' ', sizeof text);
    text[64] = '8';
    CHECK(!dl_counter_parse((dl_bytes){text, 80}, &number));
    memset(text, '0', sizeof text);
    CHECK(!dl_counter_parse((dl_bytes){text, 65}, &number));
}

CHECK_CASE(writes_every_number)
{
    char text[DL_COUNTER_TEXT_SIZE + 1];

    CHECK_BYTES(dl_counter_format(0, text), "0");
    CHECK_BYTES(dl_counter_format(-7, text), "-7");
    CHECK_BYTES(dl_counter_format(INT64_MAX, text), "9223372036854775807");
    CHECK_BYTES(dl_counter_format(INT64_MIN, text), "-9223372036854775808");
}

CHECK_CASE(sums_wrap)
{
    int64_t sum;

    CHECK_OK(dl_counter_add(DL_LITERAL("k"), DL_LITERAL("5"), -7, &sum));
    CHECK_EQUAL(sum, -2);
    CHECK_OK(
        dl_counter_add(DL_LITERAL("k"), DL_LITERAL("9223372036854775807"), 1, &sum));
    CHECK(sum == INT64_MIN);
    CHECK_OK(
        dl_counter_add(DL_LITERAL("k"), DL_LITERAL("-9223372036854775808"), -1, &sum));
    CHECK(sum == INT64_MAX);
}

CHECK_CASE(text_is_refused_with_its_key)
{
    int64_t sum = 3;

    CHECK_STATUS(dl_counter_add(DL_LITERAL("a\nb"), DL_LITERAL("high"), 1, &sum),
                 DL_INVALID);
    CHECK_TEXT(dl_last_error()->text,
               "the value of key \"a\\x0ab\" is not a 64-bit number");
    CHECK_EQUAL(sum, 3);
}
