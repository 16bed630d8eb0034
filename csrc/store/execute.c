/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/execute.h"

#include <stdlib.h>

#include "store/store.h"

/* Returns the index of the first key that does not exist or, with `needs_value`, that
 * has no value; the number of keys if there is none. */
static int64_t
count_present(const dl_table *table, const dl_store_request *request, bool needs_value)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    int64_t present = 0;
    dl_bytes key;

    /* Key by key, since an array of decoded keys would be as large as the request. */
    while (dl_key_walk_next(&walk, &key, NULL)
           && (needs_value ? dl_table_get(table, key) != NULL
                           : dl_table_has(table, key))) {
        present++;
    }
    return present;
}

static dl_status
need_all(const dl_table *table, const dl_store_request *request, bool needs_value,
         int64_t *present)
{
    *present = count_present(table, request, needs_value);
    return (size_t)*present == request->count ? DL_OK : DL_NOT_FOUND;
}

static dl_status
execute_multi_set(dl_table *table, const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key, value;
    dl_status status = DL_OK;

    while (status == DL_OK && dl_key_walk_next(&walk, &key, &value)) {
        status = dl_table_set(table, key, value);
    }
    return status;
}

dl_status
dl_table_execute(dl_table *table, const dl_store_request *request,
                 dl_table_reply *reply)
{
    dl_bytes key = request->key;

    switch (request->op) {
    case DL_OP_SET:
        return request->blob != NULL ? dl_table_set_blob(table, key, request->blob)
                                     : dl_table_set(table, key, request->value);
    case DL_OP_COMPARE_SET:
        return dl_table_compare_set(table, key, request->expected, request->value,
                                    &reply->value);
    case DL_OP_GET:
        reply->value = dl_table_get(table, key);
        return reply->value != NULL ? DL_OK : DL_NOT_FOUND;
    case DL_OP_ADD:
        return dl_table_add(table, key, request->number, &reply->number);
    case DL_OP_CHECK:
        reply->number = (size_t)count_present(table, request, false) == request->count;
        return DL_OK;
    case DL_OP_WAIT:
        return need_all(table, request, false, &reply->number);
    case DL_OP_MULTI_GET:
        return need_all(table, request, true, &reply->number);
    case DL_OP_NUM_KEYS:
    case DL_OP_LIST_KEYS:
        reply->number = dl_table_num_keys(table);
        return DL_OK;
    case DL_OP_DELETE_KEY:
        reply->number = dl_table_delete(table, key);
        return DL_OK;
    case DL_OP_APPEND:
        return dl_table_append(table, key, request->value);
    case DL_OP_MULTI_SET:
        return execute_multi_set(table, request);
    case DL_OP_QUEUE_PUSH:
        return dl_table_queue_push(table, key, request->value);
    case DL_OP_QUEUE_POP:
        reply->number = dl_table_queue_pop(table, key, &reply->value);
        return reply->number > 0 ? DL_OK : DL_QUEUE_EMPTY;
    case DL_OP_QUEUE_LEN:
        reply->number = dl_table_queue_size(table, key);
        return DL_OK;
    case DL_OP_STATS:
        return DL_OK;
    default:
        return dl_fail(DL_INTERNAL, "%s is not executed on a table",
                       dl_request_kinds[request->op].wire_name);
    }
}

void
dl_table_put_facts(const dl_table *table, dl_buffer *text)
{
    dl_reply_put_fact(text, "keys", (uint64_t)dl_table_num_keys(table));
    dl_reply_put_fact(text, "names", table->entries.count);
    dl_reply_put_fact(text, "bytes", table->size);
    dl_reply_put_fact(text, "waiters", table->waiter_count);
}

static dl_status
hold_values(const dl_table *table, const dl_store_request *request,
            dl_table_reply *held)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key;

    held->values = calloc(request->count + 1, sizeof(dl_blob *)); /* never of size 0 */
    if (held->values == NULL) {
        return dl_fail_no_memory();
    }
    for (size_t i = 0; dl_key_walk_next(&walk, &key, NULL); i++) {
        held->values[i] = dl_blob_ref(dl_table_get(table, key));
    }
    return DL_OK;
}

dl_status
dl_table_hold(const dl_table *table, const dl_store_request *request,
              dl_table_reply *held, dl_store_reply *reply)
{
    switch (request->op) {
    case DL_OP_GET:
    case DL_OP_COMPARE_SET:
        if (held->value != NULL) {
            dl_blob_ref(held->value);
        }
        return DL_OK;
    case DL_OP_MULTI_GET:
        return hold_values(table, request, held);
    case DL_OP_LIST_KEYS:
        dl_buffer_clear(reply->values);
        return dl_table_put_names(table, reply->values);
    case DL_OP_STATS:
        dl_buffer_clear(reply->values);
        dl_table_put_facts(table, reply->values);
        return dl_buffer_check(reply->values);
    default:
        return DL_OK;
    }
}

static dl_status
give_values(dl_blob **held, dl_buffer *values, size_t count)
{
    dl_status status = DL_OK;

    for (size_t i = 0; i < count; i++) {
        if (status == DL_OK) {
            status = dl_buffer_set(&values[i], dl_blob_bytes(held[i]));
        }
        dl_blob_unref(held[i]);
    }
    free(held);
    return status;
}

dl_status
dl_table_give(const dl_table_reply *held, const dl_store_request *request,
              dl_store_reply *reply)
{
    dl_status status;

    reply->number = held->number;
    switch (request->op) {
    case DL_OP_GET:
    case DL_OP_COMPARE_SET:
    case DL_OP_QUEUE_POP:
        status = dl_buffer_set(reply->values, held->value == NULL
                                                  ? request->expected
                                                  : dl_blob_bytes(held->value));
        dl_blob_unref(held->value);
        return status;
    case DL_OP_MULTI_GET:
        return give_values(held->values, reply->values, request->count);
    default:
        return DL_OK;
    }
}
