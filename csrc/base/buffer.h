/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A growable byte buffer with one owner.  Zeroed memory is an empty buffer.  A failed
 * allocation is remembered: later puts do nothing, and one dl_buffer_check() at the end
 * reports it, so encoders need no check per field.
 *
 * The owner may supply an allocator for large contents, so that they are built in the
 * memory where they are needed in the end and are not copied there, and memory for small
 * ones, which then need no allocation. */
#ifndef DISTLITE_BASE_BUFFER_H
#define DISTLITE_BASE_BUFFER_H

#include "base/bytes.h"
#include "base/status.h"

/* From this capacity on, copying costs more than a call of the owner's allocator. */
#define DL_BUFFER_LARGE ((size_t)64 << 10)

/* Behaves as realloc(3) of which only the first `kept` bytes must be preserved; a
 * `capacity` of 0 frees. */
typedef void *(*dl_resize_fn)(void *data, size_t kept, size_t capacity);

typedef struct dl_buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
    bool has_failed;
    bool is_large;      /* `data` was allocated by `large` */
    bool is_lent;       /* `data` is the owner's, and is not freed */
    dl_resize_fn large; /* NULL: heap only; may be set only while the buffer is empty */
} dl_buffer;

/* Frees the memory and leaves an empty buffer, which keeps its `large`. */
void dl_buffer_fini(dl_buffer *buffer);

/* Empties the buffer and forgets a failed allocation; keeps the memory. */
void dl_buffer_clear(dl_buffer *buffer);

/* Makes room for `extra` more bytes; the capacity at least doubles when it grows. */
dl_status dl_buffer_reserve(dl_buffer *buffer, size_t extra);

/* Sets the capacity to exactly `capacity` bytes in all.  Contents beyond it are cut
 * off; 0 frees the memory. */
dl_status dl_buffer_resize_capacity(dl_buffer *buffer, size_t capacity);

/* Appends `bytes`; a failure is reported by dl_buffer_check(). */
void dl_buffer_put(dl_buffer *buffer, dl_bytes bytes);

/* Removes `size` bytes from the front, at the cost of moving the rest. */
void dl_buffer_consume(dl_buffer *buffer, size_t size);

/* Returns DL_NO_MEMORY if an allocation failed since the last clear. */
dl_status dl_buffer_check(const dl_buffer *buffer);

/* Replaces the contents by a copy of `bytes`. */
dl_status dl_buffer_set(dl_buffer *buffer, dl_bytes bytes);

static inline dl_bytes
dl_buffer_bytes(const dl_buffer *buffer)
{
    return (dl_bytes){buffer->data, buffer->size};
}

#endif
