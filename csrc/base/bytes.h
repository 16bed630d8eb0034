/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A borrowed run of bytes.  Never stored past the call that received it, unless the
 * header says who keeps the memory. */
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

/* A string literal without its terminator. */
#define DL_LITERAL(text) ((dl_bytes){(const uint8_t *)(text), sizeof(text) - 1})

static inline dl_bytes
dl_bytes_of(const char *text)
{
    return (dl_bytes){(const uint8_t *)text, strlen(text)};
}

/* An empty run may be {NULL, 0}, and memcmp(3) must not be given NULL, not even for no
 * bytes at all: hence the tests for size 0 here and below. */
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
