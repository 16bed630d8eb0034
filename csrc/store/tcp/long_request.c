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

/* A listing of more names is shared by all clients instead of copied for each. */
#define MANY_NAMES 256

/* Storing so many bytes costs about as much as one more key. */
#define BYTES_OF_A_KEY 4096

bool
dl_request_is_long(const dl_store_request *request, const dl_table *table)
{
    if (request->op == DL_OP_LIST_KEYS || request->op == DL_OP_NUM_KEYS) {
        return dl_table_next_end(table) <= table->now
               || (request->op == DL_OP_LIST_KEYS
                   && (dl_table_num_keys(table) > MANY_NAMES
                       || dl_table_names_size(table) > MANY_BYTES));
    }
    return request->count > MANY_KEYS
           || (request->op == DL_OP_MULTI_SET
               && dl_reader_left(&request->items) > MANY_BYTES);
}

dl_long_request *
dl_long_new(const dl_store_request *request, const dl_table *table)
{
    dl_long_request *one = calloc(1, sizeof *one);

    if (one != NULL) {
        one->request = *request;
        one->until = table->now;
    }
    return one;
}

void
dl_long_free(dl_long_request *one)
{
    if (one != NULL) {
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

static void
drop_blob(dl_blob **blob)
{
    dl_blob_unref(*blob);
    *blob = NULL;
}

void
dl_names_fini(dl_names *names)
{
    dl_table_cursor_end(&names->cursor);
    drop_blob(&names->latest.names);
    drop_blob(&names->begun.names);
    for (size_t i = 0; i < DL_NAMES_HELD; i++) {
        drop_blob(&names->held[i]);
    }
}

/* Releases `latest`, or moves it to `held` while a client still reads it.  Returns
 * false when `held` is full. */
static bool
retire_latest(dl_names *names)
{
    for (size_t i = 0; i < DL_NAMES_HELD; i++) {
        if (names->held[i] != NULL && dl_blob_is_unique(names->held[i])) {
            drop_blob(&names->held[i]);
        }
    }
    if (names->latest.names == NULL || dl_blob_is_unique(names->latest.names)) {
        drop_blob(&names->latest.names);
        return true;
    }
    for (size_t i = 0; i < DL_NAMES_HELD; i++) {
        if (names->held[i] == NULL) {
            names->held[i] = names->latest.names;
            names->latest.names = NULL;
            return true;
        }
    }
    return false;
}

static dl_status
begin_names(dl_names *names, dl_table *table)
{
    if (!retire_latest(names)) {
        names->refusals++;
        return dl_fail(DL_NO_MEMORY,
                       "LIST_KEYS: clients have not read %d earlier listings; read the "
                       "replies, or ask less often while keys are set and deleted",
                       DL_NAMES_HELD);
    }
    names->begun = (dl_listing){
        .names = dl_blob_new(0),
        .version = table->names_version,
    };
    if (names->begun.names == NULL) {
        return dl_fail_no_memory();
    }
    dl_table_cursor_begin(table, &names->cursor);
    return DL_OK;
}

static dl_status
put_name(dl_listing *listing, dl_bytes name)
{
    uint8_t bytes[sizeof(uint64_t)];

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)((uint64_t)name.size >> 8 * i);
    }
    DL_TRY(dl_blob_append(&listing->names, (dl_bytes){bytes, sizeof bytes}));
    DL_TRY(dl_blob_append(&listing->names, name));
    listing->count++;
    return DL_OK;
}

/* Discards the unfinished listing and returns `status`. */
static dl_status
give_up_names(dl_names *names, dl_status status)
{
    dl_table_cursor_end(&names->cursor);
    drop_blob(&names->begun.names);
    return status;
}

/* Builds a listing of version `since` or later, unless there is one, and decrements
 * `*work` for each name.  Returns true when `names->latest` is such a listing.  Returns
 * false with `*status` DL_OK when `*work` is used up (call again), or DL_NO_MEMORY when
 * out of memory or when DL_NAMES_HELD earlier listings are still being read. */
static bool
make_names(dl_names *names, dl_table *table, uint64_t since, int *work,
           dl_status *status)
{
    dl_bytes name;

    *status = DL_OK;
    while (names->latest.names == NULL || names->latest.version < since) {
        if (names->begun.names == NULL) {
            *status = begin_names(names, table);
            if (*status != DL_OK) {
                return false;
            }
        }
        while (dl_table_cursor_next(&names->cursor, &name)) {
            if (put_name(&names->begun, name) != DL_OK) {
                *status = give_up_names(names, DL_NO_MEMORY);
                return false;
            }
            if (--*work <= 0) {
                return false;
            }
        }
        dl_table_cursor_end(&names->cursor);
        /* Overwrites nothing: begin_names() has released the earlier `latest`. */
        names->latest = names->begun;
        names->begun = (dl_listing){0};
    }
    return true;
}

/* Removes the values that have ended before the request.  Returns false when `*work` is
 * used up. */
static bool
expire(dl_long_request *one, dl_table *table, int *work)
{
    if (!one->is_expired && dl_table_expire(table, one->until, work)) {
        one->is_expired = true;
        one->since = table->names_version;
    }
    return one->is_expired;
}

static dl_long_progress
step_count(dl_long_request *one, dl_table *table, int *work)
{
    if (!expire(one, table, work)) {
        return DL_LONG_MORE;
    }
    dl_put_i64(&one->reply.bytes, dl_table_num_keys(table));
    return DL_LONG_DONE;
}

static dl_long_progress
step_list(dl_long_request *one, dl_table *table, dl_names *names, int *work)
{
    dl_status status;

    if (!expire(one, table, work)) {
        return DL_LONG_MORE;
    }
    if (!make_names(names, table, one->since, work, &status)) {
        return status == DL_OK ? DL_LONG_MORE : DL_LONG_FAILED;
    }
    dl_put_i64(&one->reply.bytes, names->latest.count);
    dl_output_put_blob(&one->reply, names->latest.names);
    return DL_LONG_DONE;
}

dl_long_progress
dl_long_step(dl_long_request *one, dl_table *table, dl_names *names, int *work,
             dl_bytes *key)
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
        return step_list(one, table, names, work);
    case DL_OP_NUM_KEYS:
        return step_count(one, table, work);
    default:
        dl_fail(DL_INTERNAL, "%s is not a long request",
                dl_request_kinds[one->request.op].wire_name);
        return DL_LONG_FAILED;
    }
}
