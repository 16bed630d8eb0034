/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text.h"

#include "check.h"

static const char *
foreign(const char *bytes, size_t count)
{
    static char text[64];
    size_t size = 0;

    text[0] = '\0';
    dl_text_append_escaped(text, sizeof text, &size, bytes, count);
    CHECK_EQUAL(strlen(text), size);
    return text;
}

#define FOREIGN(literal) foreign(literal, sizeof(literal) - 1)

CHECK_CASE(printable_text_is_unchanged)
{
    CHECK_TEXT(FOREIGN("key ~/1"), "key ~/1");
    CHECK_TEXT(FOREIGN("sch\xc3\xb6n \xe2\x82\xac \xf0\x9f\x9a\x80 \xc2\xa0"),
               "sch\xc3\xb6n \xe2\x82\xac \xf0\x9f\x9a\x80 \xc2\xa0");
}

CHECK_CASE(controls_are_escaped)
{
    CHECK_TEXT(FOREIGN("a\nb\r\t\x1b[2J\x7f"), "a\\x0ab\\x0d\\x09\\x1b[2J\\x7f");
    CHECK_TEXT(FOREIGN("a\0b"), "a\\x00b");
    /* C1: a byte of its own, and as UTF-8. */
    CHECK_TEXT(FOREIGN("\x9b"
                       "1m"),
               "\\x9b1m");
    CHECK_TEXT(FOREIGN("\xc2\x9b"
                       "1m"),
               "\\xc2\\x9b1m");
}

CHECK_CASE(bytes_that_are_not_utf_8_are_escaped)
{
    CHECK_TEXT(FOREIGN("\xff\xc0\x80"), "\\xff\\xc0\\x80");
    CHECK_TEXT(FOREIGN("\xc3"), "\\xc3");
    CHECK_TEXT(FOREIGN("\xe2\x82x"), "\\xe2\\x82x");
    CHECK_TEXT(FOREIGN("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
    CHECK_TEXT(FOREIGN("\xc3("), "\\xc3(");
    /* Overlong forms, of which some are controls: the last is of U+009B. */
    CHECK_TEXT(FOREIGN("\xe0\x9f\xbf"), "\\xe0\\x9f\\xbf");
    CHECK_TEXT(FOREIGN("\xf0\x8f\xbf\xbf"), "\\xf0\\x8f\\xbf\\xbf");
    CHECK_TEXT(FOREIGN("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");
    /* Surrogates, and beyond the last code point. */
    CHECK_TEXT(FOREIGN("\xed\xa0\x80"), "\\xed\\xa0\\x80");
    CHECK_TEXT(FOREIGN("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

CHECK_CASE(the_ends_of_the_ranges_stay)
{
    static const char *const texts[] = {
        "\xc2\xa0",         "\xdf\xbf",         "\xe0\xa0\x80",
        "\xed\x9f\xbf",     "\xee\x80\x80",     "\xef\xbf\xbf",
        "\xf0\x90\x80\x80", "\xf3\xbf\xbf\xbf", "\xf4\x8f\xbf\xbf",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_TEXT(foreign(texts[i], strlen(texts[i])), texts[i]);
    }
}

CHECK_CASE(text_that_does_not_fit_is_cut_off)
{
    char text[6];
    size_t size = 0;

    dl_text_append_escaped(text, sizeof text, &size, "abc\ndef", 7);
    CHECK_TEXT(text, "abc\\x");
    CHECK_EQUAL(size, 5);
}
