/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/counter.h"

#include <inttypes.h>
#include <stdio.h>

#include "store/store.h"

/* More than any text that a program makes of a number.  Bytes beyond it are not parsed,
 * or an `add` would take as long as the value has leading blanks or zeros. */
#define PARSED_SIZE 64

static bool
is_blank(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static bool
is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

bool
dl_counter_parse(dl_bytes text, int64_t *number)
{
    const uint8_t *next = text.data;
    bool is_cut = text.size > PARSED_SIZE;
    const uint8_t *end = text.data + (is_cut ? PARSED_SIZE : text.size);
    int64_t sum = 0;

    /* strtoll(3) cannot be used: the text has no terminator and may hold zero bytes. */
    while (next < end && is_blank(*next)) {
        next++;
    }
    bool is_negative = next < end && *next == '-';
    if (next < end && (*next == '-' || *next == '+')) {
        next++;
    }
    if (next == end || !is_digit(*next)) {
        return false;
    }
    for (; next < end && is_digit(*next); next++) {
        /* Accumulated with its sign, since -INT64_MIN does not fit. */
        int digit = is_negative ? '0' - *next : *next - '0';
        if (__builtin_mul_overflow(sum, 10, &sum)
            || __builtin_add_overflow(sum, digit, &sum)) {
            return false;
        }
    }
    /* The digits continue beyond the parsed bytes, so that those parsed are another
     * number. */
    if (is_cut && next == end && is_digit(*next)) {
        return false;
    }
    *number = sum;
    return true;
}

dl_bytes
dl_counter_format(int64_t number, char text[DL_COUNTER_TEXT_SIZE + 1])
{
    int size = snprintf(text, DL_COUNTER_TEXT_SIZE + 1, "%" PRId64, number);

    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}

dl_status
dl_counter_add(dl_bytes key, dl_bytes held, int64_t delta, int64_t *sum)
{
    int64_t number;

    if (!dl_counter_parse(held, &number)) {
        return dl_store_fail_not_a_number(key);
    }
    /* Unsigned arithmetic, for which wrapping is defined. */
    *sum = (int64_t)((uint64_t)number + (uint64_t)delta);
    return DL_OK;
}
