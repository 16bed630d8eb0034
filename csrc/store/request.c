/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const dl_request_kind dl_request_kinds[DL_OP_COUNT] = {
    [DL_OP_VALIDATE] = {NULL, "VALIDATE", {DL_FIELD_U32}, DL_REPLY_NONE},
    [DL_OP_SET] = {"set",
                   "SET",
                   {DL_FIELD_KEY, DL_FIELD_VALUE},
                   DL_REPLY_NONE,
                   .is_change = true},
    [DL_OP_COMPARE_SET] = {"compare_set",
                           "COMPARE_SET",
                           {DL_FIELD_KEY, DL_FIELD_EXPECTED, DL_FIELD_VALUE},
                           DL_REPLY_VALUE,
                           .is_change = true},
    [DL_OP_GET] = {"get", "GET", {DL_FIELD_KEY}, DL_REPLY_VALUE, .may_wait = true},
    [DL_OP_ADD] = {"add",
                   "ADD",
                   {DL_FIELD_KEY, DL_FIELD_I64},
                   DL_REPLY_NUMBER,
                   .is_change = true},
    [DL_OP_CHECK] = {"check",
                     "CHECK",
                     {DL_FIELD_COUNT, DL_FIELD_KEYS},
                     DL_REPLY_ALL_EXIST},
    [DL_OP_WAIT] = {"wait",
                    "WAIT",
                    {DL_FIELD_COUNT, DL_FIELD_KEYS},
                    DL_REPLY_OVER,
                    .may_wait = true},
    [DL_OP_NUM_KEYS] = {"num_keys", "GETNUMKEYS", {DL_FIELD_END}, DL_REPLY_NUMBER},
    [DL_OP_DELETE_KEY] = {"delete_key",
                          "DELETE_KEY",
                          {DL_FIELD_KEY},
                          DL_REPLY_EXISTED,
                          .is_change = true},
    [DL_OP_APPEND] = {"append",
                      "APPEND",
                      {DL_FIELD_KEY, DL_FIELD_VALUE},
                      DL_REPLY_NONE,
                      .is_change = true},
    [DL_OP_MULTI_GET] = {"multi_get",
                         "MULTI_GET",
                         {DL_FIELD_COUNT, DL_FIELD_KEYS},
                         DL_REPLY_VALUES,
                         .may_wait = true},
    [DL_OP_MULTI_SET] = {"multi_set",
                         "MULTI_SET",
                         {DL_FIELD_COUNT, DL_FIELD_PAIRS},
                         DL_REPLY_NONE,
                         .is_change = true},
    [DL_OP_CANCEL_WAIT] = {NULL, "CANCEL_WAIT", {DL_FIELD_END}, DL_REPLY_CANCELLED},
    [DL_OP_PING] = {NULL, "PING", {DL_FIELD_U32}, DL_REPLY_NONCE},
    [DL_OP_QUEUE_PUSH] = {"queue_push",
                          "QUEUE_PUSH",
                          {DL_FIELD_KEY, DL_FIELD_VALUE},
                          DL_REPLY_NONE,
                          .needs_queues = true,
                          .is_change = true},
    [DL_OP_QUEUE_POP] = {"queue_pop",
                         "QUEUE_POP",
                         {DL_FIELD_KEY},
                         DL_REPLY_ITEM,
                         .may_wait = true,
                         .needs_queues = true,
                         .is_change = true},
    [DL_OP_QUEUE_LEN] = {"queue_len",
                         "QUEUE_LEN",
                         {DL_FIELD_KEY},
                         DL_REPLY_NUMBER,
                         .needs_queues = true},
    [DL_OP_LIST_KEYS] = {"list_keys", "LIST_KEYS", {DL_FIELD_END}, DL_REPLY_NAMES},
    [DL_OP_BARRIER] = {"barrier",
                       "BARRIER",
                       {DL_FIELD_KEY, DL_FIELD_I64},
                       DL_REPLY_OVER,
                       .may_wait = true,
                       .is_change = true},
    [DL_OP_STATS] = {"stats", "STATS", {DL_FIELD_END}, DL_REPLY_STATS},
};

const dl_bytes *
dl_request_keys(const dl_store_request *request, size_t *count)
{
    bool is_single = dl_request_kinds[request->op].fields[0] == DL_FIELD_KEY;

    *count = is_single ? 1 : request->count;
    return is_single ? &request->key : request->keys;
}

dl_key_walk
dl_key_walk_begin(const dl_store_request *request)
{
    bool is_single = dl_request_kinds[request->op].fields[0] == DL_FIELD_KEY;

    return (dl_key_walk){.request = request,
                         .items = request->items,
                         .count = is_single ? 1 : request->count};
}

dl_bytes
dl_request_take_item(dl_reader *items)
{
    dl_bytes item = {0};

    /* Cannot fail: decoding has checked every item. */
    dl_take_bytes(items, SIZE_MAX, &item);
    return item;
}

bool
dl_key_walk_next(dl_key_walk *walk, dl_bytes *key, dl_bytes *value)
{
    const dl_store_request *request = walk->request;

    if (walk->next == walk->count) {
        return false;
    }
    if (walk->items.next != NULL) {
        *key = dl_request_take_item(&walk->items);
        if (value != NULL) {
            *value = dl_request_take_item(&walk->items);
        }
    } else {
        *key = request->keys == NULL ? request->key : request->keys[walk->next];
        if (value != NULL) {
            *value = request->values[walk->next];
        }
    }
    walk->next++;
    return true;
}

dl_status
dl_reply_keep_names(dl_store_reply *reply, dl_bytes prefix)
{
    dl_reader names = dl_reader_of(dl_buffer_bytes(reply->values));
    dl_buffer kept = {0};
    int64_t count = 0;
    dl_bytes name;

    while (dl_take_bytes(&names, SIZE_MAX, &name) == 1) {
        if (dl_bytes_start_with(name, prefix)) {
            dl_put_bytes(&kept,
                         (dl_bytes){name.data + prefix.size, name.size - prefix.size});
            count++;
        }
    }
    dl_status status = dl_buffer_check(&kept);
    dl_buffer_fini(reply->values);
    *reply->values = kept;
    reply->number = count;
    return status;
}

void
dl_reply_put_word(dl_buffer *text, const char *name, const char *word)
{
    dl_buffer_put(text, dl_bytes_of(name));
    dl_buffer_put(text, DL_LITERAL(" "));
    dl_buffer_put(text, dl_bytes_of(word));
    dl_buffer_put(text, DL_LITERAL("\n"));
}

void
dl_reply_put_fact(dl_buffer *text, const char *name, uint64_t value)
{
    char word[24];

    snprintf(word, sizeof word, "%" PRIu64, value);
    dl_reply_put_word(text, name, word);
}

/* Moves what precedes the byte `end` from the front of `*text` to `*part`, and drops
 * that byte. */
static bool
take_until(dl_bytes *text, uint8_t end, dl_bytes *part)
{
    const uint8_t *found = text->size == 0 ? NULL : memchr(text->data, end, text->size);

    if (found == NULL) {
        return false;
    }
    size_t size = (size_t)(found - text->data);
    *part = (dl_bytes){text->data, size};
    *text = (dl_bytes){found + 1, text->size - size - 1};
    return true;
}

int
dl_reply_take_fact(dl_bytes *text, dl_bytes *name, dl_bytes *value)
{
    dl_bytes line;

    if (text->size == 0) {
        return 0;
    }
    if (!take_until(text, '\n', &line) || !take_until(&line, ' ', name)
        || name->size == 0 || line.size == 0) {
        return -1;
    }
    *value = line;
    return 1;
}
