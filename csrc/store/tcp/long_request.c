/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/long_request.h"

#include <stdlib.h>

#include "base/reader.h"
#include "store/store.h"
#include "store/tcp/wire.h"

/* A request of at most so many keys and bytes takes some microseconds: it is executed
 * at once and is atomic for other clients. */
#define MANY_KEYS 64
#define MANY_BYTES (64u << 10)

#define MANY_NAMES 256

/* Storing so many bytes costs about as much as one more key. */
#define BYTES_OF_A_KEY 4096

bool
dl_request_is_long(const dl_store_request *request, const dl_table *table)
{
    if (request->op == DL_OP_LIST_KEYS) {
        return dl_table_num_keys(table) > MANY_NAMES;
    }
    return request->count > MANY_KEYS
           || (request->op == DL_OP_MULTI_SET
               && dl_reader_left(&request->items) > MANY_BYTES);
}

dl_long_request *
dl_long_new(const dl_store_request *request)
{
    dl_long_request *one = calloc(1, sizeof *one);

    if (one != NULL) {
        one->request = *request;
    }
    return one;
}

void
dl_long_free(dl_long_request *one)
{
    if (one != NULL) {
        dl_table_cursor_end(&one->cursor);
        dl_buffer_fini(&one->bytes);
        dl_output_fini(&one->reply);
        free(one);
    }
}

/* Called once the items have reached their final place: the walk points into them. */
static void
begin_walk(dl_long_request *one)
{
    one->walk = dl_key_walk_begin(&one->request);
}

void
dl_long_own(dl_long_request *one, dl_buffer *held)
{
    one->bytes = *held;
    *held = (dl_buffer){0};
    begin_walk(one);
}

dl_status
dl_long_copy(dl_long_request *one)
{
    dl_reader *items = &one->request.items;

    if (items->next != NULL) {
        dl_buffer_put(&one->bytes, (dl_bytes){items->next, dl_reader_left(items)});
        DL_TRY(dl_buffer_check(&one->bytes));
        *items = dl_reader_of(dl_buffer_bytes(&one->bytes));
    }
    begin_walk(one);
    return DL_OK;
}

static dl_long_progress
step_check(dl_long_request *one, const dl_table *table, int *work)
{
    dl_bytes key;

    while (dl_key_walk_next(&one->walk, &key, NULL)) {
        if (!dl_table_check(table, &key, 1)) {
            dl_put_u8(&one->reply.bytes, DL_WIRE_NOT_READY);
            return DL_LONG_DONE;
        }
        if (--*work <= 0) {
            return DL_LONG_MORE;
        }
    }
    dl_put_u8(&one->reply.bytes, DL_WIRE_READY);
    return DL_LONG_DONE;
}

/* Blocks on the first absent key, and looks for the next one when that key exists: the
 * waiter is linked to one key at a time, however many the request names.  All keys must
 * exist at the same time, so after any wait they are checked again from the start. */
static dl_long_progress
step_wait(dl_long_request *one, const dl_table *table, int *work, dl_bytes *key)
{
    for (;;) {
        while (dl_key_walk_next(&one->walk, key, NULL)) {
            if (!dl_table_check(table, key, 1)) {
                one->has_waited = true;
                return DL_LONG_BLOCKED;
            }
            if (--*work <= 0) {
                return DL_LONG_MORE;
            }
        }
        if (!one->has_waited) {
            dl_put_u8(&one->reply.bytes, DL_WIRE_READY);
            return DL_LONG_DONE;
        }
        one->has_waited = false;
        begin_walk(one);
    }
}

static dl_long_progress
step_get(dl_long_request *one, const dl_table *table, int *work)
{
    dl_bytes key;

    while (dl_key_walk_next(&one->walk, &key, NULL)) {
        dl_blob *value = dl_table_get(table, key);
        /* A plain reply cannot report an absent key: its value is sent as empty. */
        if (value == NULL && one->request.is_checked
            && !dl_table_check(table, &key, 1)) {
            dl_store_fail_absent(key);
            return DL_LONG_FAILED;
        }
        dl_output_put_value(&one->reply, value);
        if (--*work <= 0) {
            return DL_LONG_MORE;
        }
    }
    return DL_LONG_DONE;
}

static dl_long_progress
step_set(dl_long_request *one, dl_table *table, int *work)
{
    dl_bytes key, value;

    while (dl_key_walk_next(&one->walk, &key, &value)) {
        if (dl_table_set(table, key, value) != DL_OK) {
            return DL_LONG_FAILED;
        }
        *work -= 1 + (int)(value.size / BYTES_OF_A_KEY);
        if (*work <= 0) {
            return DL_LONG_MORE;
        }
    }
    return DL_LONG_DONE;
}

static dl_long_progress
step_list(dl_long_request *one, dl_table *table, int *work)
{
    dl_buffer *bytes = &one->reply.bytes;
    dl_buffer count = {0};
    dl_bytes name;

    if (bytes->size == 0) {
        dl_put_i64(bytes, 0); /* replaced by the count, which is known at the end */
        dl_table_cursor_begin(table, &one->cursor);
    }
    while (dl_table_cursor_next(&one->cursor, &name)) {
        dl_put_bytes(bytes, name);
        one->listed++;
        if (--*work <= 0) {
            return DL_LONG_MORE;
        }
    }
    dl_put_i64(&count, one->listed);
    if (dl_buffer_check(bytes) != DL_OK || dl_buffer_check(&count) != DL_OK) {
        dl_buffer_fini(&count);
        return DL_LONG_FAILED;
    }
    memcpy(bytes->data, count.data, count.size);
    dl_buffer_fini(&count);
    return DL_LONG_DONE;
}

dl_long_progress
dl_long_step(dl_long_request *one, dl_table *table, int *work, dl_bytes *key)
{
    switch (one->request.op) {
    case DL_OP_CHECK:
        return step_check(one, table, work);
    case DL_OP_WAIT:
        return step_wait(one, table, work, key);
    case DL_OP_MULTI_GET:
        return step_get(one, table, work);
    case DL_OP_MULTI_SET:
        return step_set(one, table, work);
    case DL_OP_LIST_KEYS:
        return step_list(one, table, work);
    default:
        dl_fail(DL_INTERNAL, "%s is not a long request",
                dl_request_kinds[one->request.op].wire_name);
        return DL_LONG_FAILED;
    }
}
