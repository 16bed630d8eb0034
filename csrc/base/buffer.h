/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Growable bytes with one owner.  Zeroed memory is an empty buffer.  A failed allocation
 * is remembered: later puts do nothing, and one dl_buffer_check() at the end tells, so
 * encoders need no check per field.
 *
 * The owner may have large contents kept in memory of its choice, so that they need not
 * be copied there in the end. */
#ifndef DISTLITE_BASE_BUFFER_H
#define DISTLITE_BASE_BUFFER_H

#include "base/bytes.h"
#include "base/status.h"

/* From this capacity on a copy costs more than asking for memory elsewhere. */
#define DL_BUFFER_LARGE ((size_t)64 << 10)

/* As realloc(3), whose first `kept` bytes matter; a `capacity` of 0 frees. */
typedef void *(*dl_resize_fn)(void *data, size_t kept, size_t capacity);

typedef struct dl_buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
    bool has_failed;
    bool is_large;      /* `data` came from `large` */
    dl_resize_fn large; /* NULL: all from the heap; set while empty */
} dl_buffer;

void dl_buffer_fini(dl_buffer *buffer);

/* Forgets the contents, keeps the memory. */
void dl_buffer_clear(dl_buffer *buffer);

/* Room for `extra` more bytes, geometric growth. */
dl_status dl_buffer_reserve(dl_buffer *buffer, size_t extra);

/* Room for exactly `capacity` bytes in all; also shrinks. */
dl_status dl_buffer_resize_capacity(dl_buffer *buffer, size_t capacity);

void dl_buffer_put(dl_buffer *buffer, dl_bytes bytes);

/* Drops `size` bytes from the front. */
void dl_buffer_consume(dl_buffer *buffer, size_t size);

/* DL_NO_MEMORY if any put since the last clear failed. */
dl_status dl_buffer_check(const dl_buffer *buffer);

/* Replaces the contents. */
dl_status dl_buffer_set(dl_buffer *buffer, dl_bytes bytes);

static inline dl_bytes
dl_buffer_bytes(const dl_buffer *buffer)
{
    return (dl_bytes){buffer->data, buffer->size};
}

#endif
