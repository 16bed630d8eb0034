/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buffer.h"

#include <assert.h>
#include <stdlib.h>

/* The first allocation has at least this size, so that small buffers do not grow by a
 * few bytes at a time. */
#define SMALLEST_CAPACITY 64

void
dl_buffer_fini(dl_buffer *buffer)
{
    if (buffer->is_large) {
        buffer->large(buffer->data, 0, 0);
    } else if (!buffer->is_lent) {
        free(buffer->data);
    }
    *buffer = (dl_buffer){.large = buffer->large};
}

void
dl_buffer_clear(dl_buffer *buffer)
{
    buffer->size = 0;
    buffer->has_failed = false;
}

/* Returns the new memory, or NULL with the buffer unchanged. */
static uint8_t *
resize_memory(dl_buffer *buffer, size_t capacity)
{
    size_t kept = buffer->size < capacity ? buffer->size : capacity;

    /* A buffer that `large` has allocated stays with it: the owner takes the memory
     * over as it is, and must know which allocator it came from. */
    if (buffer->is_large) {
        return buffer->large(buffer->data, kept, capacity);
    }
    bool is_large = buffer->large != NULL && capacity >= DL_BUFFER_LARGE;
    if (!is_large && !buffer->is_lent) {
        return realloc(buffer->data, capacity);
    }
    uint8_t *data = is_large ? buffer->large(NULL, 0, capacity) : malloc(capacity);
    if (data != NULL) {
        if (kept > 0) {
            memcpy(data, buffer->data, kept);
        }
        if (!buffer->is_lent) {
            free(buffer->data);
        }
        buffer->is_large = is_large;
        buffer->is_lent = false;
    }
    return data;
}

dl_status
dl_buffer_resize_capacity(dl_buffer *buffer, size_t capacity)
{
    if (capacity == 0) {
        dl_buffer_fini(buffer);
        return DL_OK;
    }
    uint8_t *data = resize_memory(buffer, capacity);
    if (data == NULL) {
        buffer->has_failed = true;
        return dl_fail_no_memory();
    }
    buffer->data = data;
    buffer->capacity = capacity;
    if (buffer->size > capacity) {
        buffer->size = capacity;
    }
    return DL_OK;
}

dl_status
dl_buffer_reserve(dl_buffer *buffer, size_t extra)
{
    /* Half of SIZE_MAX: malloc(3) never returns a larger block, so doubling an existing
     * capacity does not overflow either. */
    if (buffer->has_failed || extra > SIZE_MAX / 2 - buffer->size) {
        buffer->has_failed = true;
        return dl_fail_no_memory();
    }
    size_t needed = buffer->size + extra;
    if (needed <= buffer->capacity) {
        return DL_OK;
    }
    size_t doubled = buffer->capacity * 2;
    size_t capacity = needed > doubled ? needed : doubled;
    return dl_buffer_resize_capacity(
        buffer, capacity > SMALLEST_CAPACITY ? capacity : SMALLEST_CAPACITY);
}

void
dl_buffer_put(dl_buffer *buffer, dl_bytes bytes)
{
    if (bytes.size == 0 || dl_buffer_reserve(buffer, bytes.size) != DL_OK) {
        return;
    }
    memcpy(buffer->data + buffer->size, bytes.data, bytes.size);
    buffer->size += bytes.size;
}

void
dl_buffer_consume(dl_buffer *buffer, size_t size)
{
    assert(size <= buffer->size);
    /* The rest is moved, since `data` is the beginning of the allocation.  Callers that
     * remove many small pieces keep a position and consume them together. */
    if (size > 0) {
        memmove(buffer->data, buffer->data + size, buffer->size - size);
        buffer->size -= size;
    }
}

dl_status
dl_buffer_check(const dl_buffer *buffer)
{
    return buffer->has_failed ? dl_fail_no_memory() : DL_OK;
}

dl_status
dl_buffer_set(dl_buffer *buffer, dl_bytes bytes)
{
    dl_buffer_clear(buffer);
    dl_buffer_put(buffer, bytes);
    return dl_buffer_check(buffer);
}
