/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/partial.h"

#include <stdlib.h>

/* Values smaller than this are held with their request and copied into the table. */
#define LARGE_VALUE (16u << 10)

/* Limit of the memory that is allocated in advance for a short request. */
#define SLACK (256u << 10)

/* Returns the capacity to allocate for `size` bytes.  Short requests double, up to
 * SLACK more; long ones get an eighth more, since growing them costs less: the kernel
 * moves the pages and copies nothing. */
static size_t
capacity_for(size_t size)
{
    size_t slack = size < SLACK ? size : SLACK;

    return size + (size / 8 > slack ? size / 8 : slack);
}

dl_status
dl_partial_hold(dl_partial *partial, dl_bytes bytes)
{
    dl_buffer *held = &partial->held;
    size_t size = held->size + bytes.size;

    if (size > held->capacity) {
        DL_TRY(dl_buffer_resize_capacity(held, capacity_for(size)));
    }
    dl_buffer_put(held, bytes);
    return DL_OK;
}

/* Returns the capacity for `size` bytes of the value, at most the announced size.  When
 * less than LARGE_VALUE would be missing it is the whole size: so small a rest is not
 * worth a read of its own. */
static size_t
value_capacity_for(const dl_partial *partial, size_t size)
{
    size_t capacity = capacity_for(size);

    return capacity + LARGE_VALUE < partial->value_size ? capacity
                                                        : partial->value_size;
}

/* If the unfinished request `bytes` is a SET of a large value, begins to receive that.
 * `*held_size` is how many of the bytes remain to be held: all of them, or the head. */
static dl_status
begin_value(dl_partial *partial, dl_bytes bytes, size_t *held_size)
{
    dl_store_request request;
    size_t head_size;

    *held_size = bytes.size;
    if (partial->cursor.needed < LARGE_VALUE
        || !dl_wire_take_head(bytes, &request, &head_size, &partial->value_size)) {
        return DL_OK;
    }
    dl_bytes part = {bytes.data + head_size, bytes.size - head_size};
    partial->value = dl_blob_new(value_capacity_for(partial, part.size));
    if (partial->value == NULL) {
        return dl_fail_no_memory();
    }
    partial->value->size = 0;
    *held_size = head_size;
    return dl_partial_receive(partial, &part);
}

dl_status
dl_partial_new(const dl_wire_cursor *cursor, dl_bytes bytes, dl_partial **partial)
{
    dl_partial *created = calloc(1, sizeof *created);
    size_t held_size;

    if (created == NULL) {
        return dl_fail_no_memory();
    }
    /* Set before anything else can fail, so that the session frees it in any state. */
    *partial = created;
    created->cursor = *cursor;
    DL_TRY(begin_value(created, bytes, &held_size));
    return dl_partial_hold(created, (dl_bytes){bytes.data, held_size});
}

void
dl_partial_free(dl_partial *partial)
{
    if (partial != NULL) {
        dl_buffer_fini(&partial->held);
        dl_blob_unref(partial->value);
        free(partial);
    }
}

dl_status
dl_partial_keep_last(dl_partial *partial, size_t size)
{
    dl_buffer *held = &partial->held;

    dl_buffer_consume(held, held->size - size);
    DL_TRY(begin_value(partial, dl_buffer_bytes(held), &held->size));
    if (held->capacity > capacity_for(held->size) + LARGE_VALUE) {
        return dl_buffer_resize_capacity(held, held->size);
    }
    return DL_OK;
}

bool
dl_partial_is_receiving(const dl_partial *partial)
{
    return partial->value != NULL && partial->value->size < partial->value_size;
}

bool
dl_partial_room(dl_partial *partial, uint8_t **data, size_t *size)
{
    dl_blob *value = partial->value;

    /* As long as little has arrived the capacity is small, too: receiving into it would
     * take many short reads. */
    if (value == NULL || value->size < LARGE_VALUE) {
        return false;
    }
    if (value->capacity - value->size < LARGE_VALUE) {
        size_t capacity = value_capacity_for(partial, value->size);
        if (dl_blob_reserve(&partial->value, capacity) != DL_OK) {
            return false;
        }
        value = partial->value;
    }
    *data = value->data + value->size;
    *size = value->capacity - value->size;
    return *size > 0;
}

dl_status
dl_partial_receive(dl_partial *partial, dl_bytes *bytes)
{
    size_t missing = partial->value_size - partial->value->size;
    size_t size = bytes->size < missing ? bytes->size : missing;
    size_t total = partial->value->size + size;

    if (total > partial->value->capacity) {
        DL_TRY(dl_blob_reserve(&partial->value, value_capacity_for(partial, total)));
    }
    uint8_t *end = partial->value->data + partial->value->size;
    /* The bytes are in place already when they were read to dl_partial_room()'s
     * address. */
    if (size > 0 && bytes->data != end) {
        memcpy(end, bytes->data, size);
    }
    partial->value->size = total;
    *bytes = (dl_bytes){bytes->data + size, bytes->size - size};
    return DL_OK;
}

void
dl_partial_take_value(dl_partial *partial, dl_store_request *request)
{
    size_t head_size;
    size_t value_size;

    *request = (dl_store_request){0};
    dl_wire_take_head(dl_buffer_bytes(&partial->held), request, &head_size,
                      &value_size);
    request->blob = partial->value;
    partial->value = NULL;
}
