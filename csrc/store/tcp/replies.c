/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/replies.h"

#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"

/* Smaller values are not counted and stay until the next change: they cost about as much
 * as the slot. */
#define LARGE_VALUE 1024

void
dl_replies_init(dl_replies *replies)
{
    *replies = (dl_replies){0};
    dl_list_init(&replies->lost);
    dl_list_init(&replies->large);
    dl_list_init(&replies->unfinished);
}

static void
set_size(dl_replies *replies, dl_reply_slot *slot, size_t size)
{
    replies->size += size - slot->size;
    slot->size = size;
}

/* Updates the slot's share of the total. */
static void
count(dl_replies *replies, dl_reply_slot *slot)
{
    size_t size = sizeof *slot + slot->name.capacity;

    if (slot->unfinished != NULL) {
        size += slot->unfinished->bytes.capacity;
    }
    if (slot->large.next != NULL) {
        size += slot->value->capacity;
    }
    set_size(replies, slot, size);
}

void
dl_replies_drop_value(dl_replies *replies, dl_reply_slot *slot)
{
    dl_blob_unref(slot->value);
    slot->value = NULL;
    if (slot->large.next != NULL) {
        dl_list_remove(&slot->large);
        count(replies, slot);
    }
}

dl_long_request *
dl_replies_give_unfinished(dl_replies *replies, dl_reply_slot *slot)
{
    dl_long_request *unfinished = slot->unfinished;

    if (unfinished != NULL) {
        slot->unfinished = NULL;
        dl_list_remove(&slot->unfinished_node);
        count(replies, slot);
    }
    return unfinished;
}

void
dl_replies_forget(dl_replies *replies, dl_reply_slot *slot)
{
    dl_replies_drop_value(replies, slot);
    dl_long_free(dl_replies_give_unfinished(replies, slot));
    dl_list_remove(&slot->lost);
    dl_map_remove(&replies->slots, &slot->node);
    set_size(replies, slot, 0);
    dl_buffer_fini(&slot->name);
    free(slot);
}

void
dl_replies_fini(dl_replies *replies)
{
    dl_map_entry *node = dl_map_first(&replies->slots);

    while (node != NULL) {
        dl_map_entry *next = dl_map_next(&replies->slots, node);
        dl_replies_forget(replies, DL_MAP_ENTRY(node, dl_reply_slot, node));
        node = next;
    }
    dl_map_fini(&replies->slots);
}

static dl_reply_slot *
first_lost(const dl_replies *replies)
{
    return dl_list_is_empty(&replies->lost)
               ? NULL
               : DL_LIST_ENTRY(replies->lost.next, dl_reply_slot, lost);
}

static dl_reply_slot *
first_large(const dl_replies *replies)
{
    return dl_list_is_empty(&replies->large)
               ? NULL
               : DL_LIST_ENTRY(replies->large.next, dl_reply_slot, large);
}

/* Returns the item of an undelivered pop to its queue. */
static void
return_item(dl_table *table, dl_reply_slot *slot)
{
    if (slot->is_undelivered && slot->op == DL_OP_QUEUE_POP
        && slot->outcome == DL_OUTCOME_DONE && slot->value != NULL) {
        dl_bytes name = dl_buffer_bytes(&slot->name);
        (void)dl_table_queue_put_back(table, name, dl_blob_ref(slot->value));
    }
}

static void
forget_lost(dl_replies *replies, dl_table *table, dl_reply_slot *slot)
{
    return_item(table, slot);
    dl_replies_forget(replies, slot);
    replies->forgotten++;
}

/* Forgets a large value, or with it the slot if its connection was lost: then an item may
 * have to be returned. */
static void
forget_large(dl_replies *replies, dl_table *table, dl_reply_slot *slot)
{
    if (slot->session == NULL) {
        forget_lost(replies, table, slot);
        return;
    }
    dl_replies_drop_value(replies, slot);
    slot->outcome = DL_OUTCOME_FORGOTTEN;
    replies->forgotten++;
}

/* Forgets the oldest until the rest is within the limit, but not `kept`. */
static void
limit_size(dl_replies *replies, dl_table *table, const dl_reply_slot *kept)
{
    while (replies->limit != 0 && replies->size > replies->limit) {
        dl_reply_slot *lost = first_lost(replies);
        dl_reply_slot *large = first_large(replies);
        if (large == kept) {
            large = NULL;
        }
        if (lost != NULL && (large == NULL || lost->lost_since <= large->large_since)) {
            forget_lost(replies, table, lost);
        } else if (large != NULL) {
            forget_large(replies, table, large);
        } else {
            return;
        }
    }
}

static dl_reply_slot *
find(const dl_replies *replies, const dl_slot *named)
{
    dl_map_entry *node =
        dl_map_find(&replies->slots, (dl_bytes){named->id, sizeof named->id});

    return node == NULL ? NULL : DL_MAP_ENTRY(node, dl_reply_slot, node);
}

static dl_reply_slot *
make(dl_replies *replies, dl_table *table, const dl_slot *named)
{
    dl_reply_slot *slot = calloc(1, sizeof *slot);

    if (slot == NULL) {
        dl_fail_no_memory();
        return NULL;
    }
    memcpy(slot->id, named->id, sizeof slot->id);
    slot->sequence = named->sequence - 1;
    dl_map_insert(&replies->slots, &slot->node, (dl_bytes){slot->id, sizeof slot->id});
    count(replies, slot);
    limit_size(replies, table, NULL);
    return slot;
}

dl_reply_slot *
dl_replies_open(dl_replies *replies, dl_table *table, const dl_slot *named,
                bool *is_remembered)
{
    dl_reply_slot *slot = find(replies, named);

    *is_remembered = slot != NULL;
    if (slot == NULL) {
        return make(replies, table, named);
    }
    if (named->sequence != slot->sequence && named->sequence != slot->sequence + 1) {
        dl_fail(DL_PROTOCOL, "a hello with a change out of sequence");
        return NULL;
    }
    dl_list_remove(&slot->lost);
    slot->is_undelivered = false;
    return slot;
}

void
dl_replies_begin(dl_replies *replies, dl_reply_slot *slot, uint64_t sequence,
                 const dl_store_request *request)
{
    if (slot->value != NULL) {
        dl_replies_drop_value(replies, slot);
    }
    slot->sequence = sequence;
    slot->op = request->op;
    slot->outcome = DL_OUTCOME_NONE;
    if (request->op == DL_OP_QUEUE_POP) {
        dl_buffer_clear(&slot->name);
        dl_buffer_put(&slot->name, request->key);
    }
}

void
dl_replies_keep(dl_replies *replies, dl_table *table, dl_reply_slot *slot,
                const dl_table_reply *reply)
{
    slot->outcome = DL_OUTCOME_DONE;
    slot->number = reply->number;
    if (reply->value == NULL) {
        return;
    }
    slot->value = dl_blob_ref(reply->value);
    if (slot->value->capacity >= LARGE_VALUE) {
        slot->large_since = dl_now();
        dl_list_append(&replies->large, &slot->large);
        count(replies, slot);
        limit_size(replies, table, slot);
    }
}

void
dl_replies_take_unfinished(dl_replies *replies, dl_reply_slot *slot,
                           dl_long_request *unfinished)
{
    slot->unfinished = unfinished;
    dl_list_append(&replies->unfinished, &slot->unfinished_node);
    count(replies, slot);
}

void
dl_replies_lose(dl_replies *replies, dl_table *table, dl_reply_slot *slot,
                bool is_undelivered)
{
    slot->session = NULL;
    slot->is_undelivered = is_undelivered && !slot->name.has_failed;
    slot->lost_since = dl_now();
    dl_list_append(&replies->lost, &slot->lost);
    count(replies, slot);
    limit_size(replies, table, slot);
}

int64_t
dl_replies_next_wake(const dl_replies *replies)
{
    const dl_reply_slot *lost = first_lost(replies);
    const dl_reply_slot *large = first_large(replies);
    int64_t at = lost == NULL ? INT64_MAX : lost->lost_since + replies->age;

    if (!dl_list_is_empty(&replies->unfinished)) {
        return 0;
    }
    return large != NULL && large->large_since + replies->age < at
               ? large->large_since + replies->age
               : at;
}

/* Continues the earliest unfinished request. */
static void
finish_one(dl_replies *replies, dl_table *table, dl_names *names, int *work)
{
    dl_reply_slot *slot =
        DL_LIST_ENTRY(replies->unfinished.next, dl_reply_slot, unfinished_node);
    dl_bytes key;
    dl_long_progress progress =
        dl_long_step(slot->unfinished, table, names, work, &key);

    if (progress != DL_LONG_MORE) {
        slot->outcome = progress == DL_LONG_DONE ? DL_OUTCOME_DONE : DL_OUTCOME_NONE;
        dl_long_free(dl_replies_give_unfinished(replies, slot));
    }
}

void
dl_replies_wake(dl_replies *replies, dl_table *table, dl_names *names, int work,
                int64_t now)
{
    dl_reply_slot *slot;

    while (!dl_list_is_empty(&replies->unfinished) && work > 0) {
        finish_one(replies, table, names, &work);
    }
    while ((slot = first_lost(replies)) != NULL
           && slot->lost_since + replies->age <= now) {
        forget_lost(replies, table, slot);
    }
    while ((slot = first_large(replies)) != NULL
           && slot->large_since + replies->age <= now) {
        forget_large(replies, table, slot);
    }
}
