/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text.h"

#include "check.h"

static const char *
foreign(const char *bytes, size_t count)
{
    static char text[64];
    size_t size = 0;

    text[0] = '\0';
    dl_text_append_foreign(text, sizeof text, &size, bytes, count);
    CHECK_EQUAL(strlen(text), size);
    return text;
}

#define FOREIGN(literal) foreign(literal, sizeof(literal) - 1)

CHECK_CASE(what_can_be_shown_stays)
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

CHECK_CASE(what_is_not_utf_8_is_escaped)
{
    CHECK_TEXT(FOREIGN("\xff\xc0\x80"), "\\xff\\xc0\\x80");
    CHECK_TEXT(FOREIGN("\xc3"), "\\xc3");
    CHECK_TEXT(FOREIGN("\xe2\x82x"), "\\xe2\\x82x");
    CHECK_TEXT(FOREIGN("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

CHECK_CASE(what_does_not_fit_is_cut_off)
{
    char text[6];
    size_t size = 0;

    dl_text_append_foreign(text, sizeof text, &size, "abc\ndef", 7);
    CHECK_TEXT(text, "abc\\x");
    CHECK_EQUAL(size, 5);
}
