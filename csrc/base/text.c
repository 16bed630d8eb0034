/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

void
dl_text_append(char *text, size_t room, size_t *size, const char *format, ...)
{
    size_t left = room - *size;
    va_list arguments;

    va_start(arguments, format);
    int wanted = vsnprintf(text + *size, left, format, arguments);
    va_end(arguments);
    *size += wanted < 0 ? 0 : (size_t)wanted < left ? (size_t)wanted : left - 1;
}

/* Returns the size of the character at the front if it may be shown as it is, otherwise
 * 0. */
static size_t
shown_size(const uint8_t *bytes, size_t count)
{
    uint8_t first = bytes[0];
    size_t size = first < 0x80                    ? 1
                  : first >= 0xc2 && first < 0xe0 ? 2
                  : first >= 0xe0 && first < 0xf0 ? 3
                  : first >= 0xf0 && first < 0xf5 ? 4
                                                  : 0;

    if (size == 0 || size > count || first < ' ' || first == 0x7f) {
        return 0;
    }
    /* C1 controls, overlong forms, surrogates, and code points above U+10FFFF are
     * recognised by the second byte. */
    uint8_t low = first == 0xc2 || first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (size > 1 && (bytes[1] < low || bytes[1] > high)) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return size;
}

void
dl_text_append_escaped(char *text, size_t room, size_t *size, const char *bytes,
                       size_t count)
{
    const uint8_t *next = (const uint8_t *)bytes;

    for (size_t left = count, shown; left > 0; next += shown, left -= shown) {
        shown = shown_size(next, left);
        if (shown > 0) {
            dl_text_append(text, room, size, "%.*s", (int)shown, (const char *)next);
        } else {
            shown = 1;
            dl_text_append(text, room, size, "\\x%02x", *next);
        }
    }
}
