/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A borrowed, contiguous run of bytes.  A function does not keep the pointer after it
 * returns, unless its header says who keeps the memory alive. */
#ifndef DISTLITE_BASE_BYTES_H
#define DISTLITE_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct dl_bytes {
    const uint8_t *data;
    size_t size;
} dl_bytes;

/* The bytes of a string literal, without its terminator. */
#define DL_LITERAL(text) ((dl_bytes){(const uint8_t *)(text), sizeof(text) - 1})

/* The bytes of `text`, without its terminator. */
static inline dl_bytes
dl_bytes_of(const char *text)
{
    return (dl_bytes){(const uint8_t *)text, strlen(text)};
}

/* The checks for size 0 are needed here and below: an empty run may be {NULL, 0}, and
 * memcmp(3) must not be given NULL, not even with a size of 0. */
static inline bool
dl_bytes_equal(dl_bytes left, dl_bytes right)
{
    return left.size == right.size
           && (left.size == 0 || memcmp(left.data, right.data, left.size) == 0);
}

static inline bool
dl_bytes_start_with(dl_bytes bytes, dl_bytes prefix)
{
    return bytes.size >= prefix.size
           && (prefix.size == 0 || memcmp(bytes.data, prefix.data, prefix.size) == 0);
}

#endif
