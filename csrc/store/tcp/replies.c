/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/replies.h"

#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"

/* Smaller values are not counted and stay until the next change: they cost about as
 * much as the slot. */
#define LARGE_VALUE 1024

void
dl_replies_init(dl_replies *replies)
{
    *replies = (dl_replies){0};
    dl_list_init(&replies->aging);
}

static void
set_size(dl_replies *replies, dl_reply_slot *slot, size_t size)
{
    replies->size += size - slot->size;
    slot->size = size;
}

static bool
is_large(const dl_reply_slot *slot)
{
    return slot->value != NULL && slot->value->capacity >= LARGE_VALUE;
}

/* Updates the slot's share of the total. */
static void
count_slot(dl_replies *replies, dl_reply_slot *slot)
{
    size_t size = sizeof *slot + slot->name.capacity;

    if (is_large(slot)) {
        size += slot->value->capacity;
    }
    set_size(replies, slot, size);
}

void
dl_replies_drop_value(dl_replies *replies, dl_reply_slot *slot)
{
    bool was_large = is_large(slot);

    dl_blob_unref(slot->value);
    slot->value = NULL;
    if (was_large) {
        if (slot->session != NULL) {
            dl_list_remove(&slot->aging);
        }
        count_slot(replies, slot);
    }
}

static bool
has_item(const dl_reply_slot *slot)
{
    return slot->outcome == DL_OUTCOME_DONE && slot->op == DL_OP_QUEUE_POP;
}

void
dl_replies_put(dl_buffer *out, const dl_reply_slot *slot, bool is_whole)
{
    dl_bytes name = dl_buffer_bytes(&slot->name);
    bool is_valued = is_whole && slot->value != NULL;
    uint64_t size = 1 + 1 + 8 + 8;

    if (is_valued) {
        size += 8 + name.size + 8 + slot->value->size;
    }
    dl_put_u8(out, DL_CHANGE_REPLY);
    dl_put_bytes(out, (dl_bytes){slot->id, sizeof slot->id});
    dl_put_u64(out, size);
    dl_put_u8(out, (uint8_t)slot->op);
    dl_put_u8(out, (uint8_t)slot->outcome);
    dl_put_u64(out, slot->sequence);
    dl_put_i64(out, slot->number);
    if (is_valued) {
        dl_put_bytes(out, name);
        dl_put_bytes(out, dl_blob_bytes(slot->value));
    }
}

dl_status
dl_replies_record(dl_replies *replies, const dl_reply_slot *slot)
{
    if (replies->changes == NULL) {
        return DL_OK;
    }
    /* What is put below fits the room that every change leaves. */
    DL_TRY(dl_change_reserve(replies->changes, 0));
    dl_replies_put(replies->changes, slot, false);
    return DL_OK;
}

void
dl_replies_forget(dl_replies *replies, dl_reply_slot *slot)
{
    /* Without a record the next server remembers the slot, too, for a while. */
    if (replies->changes != NULL && dl_change_reserve(replies->changes, 0) == DL_OK) {
        dl_change_put(replies->changes, (dl_change){
                                            .kind = DL_CHANGE_FORGET,
                                            .key = {slot->id, sizeof slot->id},
                                        });
    }
    dl_replies_drop_value(replies, slot);
    dl_list_remove(&slot->aging);
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

/* Forgets a slot without a connection; the item of an undelivered pop returns to its
 * queue. */
static void
forget_lost(dl_replies *replies, dl_table *table, dl_reply_slot *slot)
{
    if (slot->is_undelivered && has_item(slot) && slot->value != NULL) {
        (void)dl_table_queue_put_back(table, dl_buffer_bytes(&slot->name),
                                      dl_blob_ref(slot->value));
    }
    dl_replies_forget(replies, slot);
    replies->forgotten++;
}

/* Forgets the slot's large value, or all of one whose connection was lost. */
static void
forget_old(dl_replies *replies, dl_table *table, dl_reply_slot *slot)
{
    if (slot->session == NULL) {
        forget_lost(replies, table, slot);
        return;
    }
    dl_replies_drop_value(replies, slot);
    slot->outcome = DL_OUTCOME_FORGOTTEN;
    replies->forgotten++;
}

/* Forgets the oldest slots and values, but not `kept`, until the rest is within the
 * limit. */
static void
limit_size(dl_replies *replies, dl_table *table, const dl_reply_slot *kept)
{
    while (replies->limit != 0 && replies->size > replies->limit) {
        dl_list *oldest = replies->aging.next;
        if (kept != NULL && oldest == &kept->aging) {
            oldest = oldest->next;
        }
        if (oldest == &replies->aging) {
            return;
        }
        forget_old(replies, table, DL_LIST_ENTRY(oldest, dl_reply_slot, aging));
    }
}

static void
begin_aging(dl_replies *replies, dl_reply_slot *slot)
{
    slot->since = dl_now();
    dl_list_remove(&slot->aging);
    dl_list_append(&replies->aging, &slot->aging);
}

static dl_reply_slot *
find_slot(const dl_replies *replies, const dl_slot *named)
{
    dl_map_entry *node =
        dl_map_find(&replies->slots, (dl_bytes){named->id, sizeof named->id});

    return node == NULL ? NULL : DL_MAP_ENTRY(node, dl_reply_slot, node);
}

static dl_reply_slot *
make_slot(dl_replies *replies, dl_table *table, const dl_slot *named)
{
    dl_reply_slot *slot = calloc(1, sizeof *slot);

    if (slot == NULL) {
        dl_fail_no_memory();
        return NULL;
    }
    memcpy(slot->id, named->id, sizeof slot->id);
    slot->sequence = named->sequence - 1;
    if (dl_replies_record(replies, slot) != DL_OK) {
        free(slot);
        return NULL;
    }
    dl_map_insert(&replies->slots, &slot->node, (dl_bytes){slot->id, sizeof slot->id});
    count_slot(replies, slot);
    limit_size(replies, table, NULL);
    return slot;
}

static dl_status
fail_malformed(void)
{
    return dl_fail(DL_BACKEND, "the record of a reply is malformed");
}

/* Takes over the item of the reply, which is forgotten if it is NULL. */
static dl_status
set_item(dl_reply_slot *slot, dl_bytes name, dl_blob *item)
{
    if (item == NULL) {
        slot->outcome = DL_OUTCOME_FORGOTTEN;
        return DL_OK;
    }
    slot->value = item;
    return dl_buffer_set(&slot->name, name);
}

/* Fills in the state of a slot from the value of its record. */
static dl_status
take_record(dl_reply_slot *slot, dl_bytes record, dl_bytes name, dl_blob *item)
{
    dl_reader reader = dl_reader_of(record);
    uint8_t op, outcome;
    dl_bytes reply;

    if (!dl_take_u8(&reader, &op) || op >= DL_OP_COUNT || !dl_take_u8(&reader, &outcome)
        || outcome > DL_OUTCOME_FORGOTTEN || !dl_take_u64(&reader, &slot->sequence)
        || !dl_take_i64(&reader, &slot->number)) {
        return fail_malformed();
    }
    slot->op = (dl_opcode)op;
    slot->outcome = (dl_outcome)outcome;
    if (dl_reader_left(&reader) == 0) {
        return has_item(slot)
                   ? set_item(slot, name, item == NULL ? NULL : dl_blob_ref(item))
                   : DL_OK;
    }
    if (dl_take_bytes(&reader, SIZE_MAX, &name) != 1
        || dl_take_bytes(&reader, SIZE_MAX, &reply) != 1
        || dl_reader_left(&reader) > 0) {
        return fail_malformed();
    }
    item = dl_blob_copy(reply);
    return item == NULL ? dl_fail_no_memory() : set_item(slot, name, item);
}

static void
keep_large(dl_replies *replies, dl_table *table, dl_reply_slot *slot)
{
    if (is_large(slot)) {
        begin_aging(replies, slot);
        count_slot(replies, slot);
        limit_size(replies, table, slot);
    }
}

dl_status
dl_replies_apply(dl_replies *replies, dl_table *table, const dl_change *change,
                 dl_bytes name, dl_blob *item)
{
    dl_slot named = {.sequence = 1};

    if (change->key.size != sizeof named.id) {
        return fail_malformed();
    }
    memcpy(named.id, change->key.data, sizeof named.id);
    dl_reply_slot *slot = find_slot(replies, &named);
    if (change->kind == DL_CHANGE_FORGET) {
        if (slot != NULL) {
            dl_replies_forget(replies, slot);
        }
        return DL_OK;
    }
    if (slot == NULL) {
        slot = make_slot(replies, table, &named);
    }
    if (slot == NULL) {
        return DL_NO_MEMORY;
    }
    dl_replies_drop_value(replies, slot);
    dl_status status = take_record(slot, change->value, name, item);
    if (slot->aging.next == NULL) {
        dl_replies_lose(replies, table, slot, false);
    }
    /* The limit may have forgotten the slot itself, which was the last to be lost. */
    if (status == DL_OK && find_slot(replies, &named) == slot) {
        keep_large(replies, table, slot);
    }
    return status;
}

dl_reply_slot *
dl_replies_open(dl_replies *replies, dl_table *table, const dl_slot *named,
                bool *is_remembered)
{
    dl_reply_slot *slot = find_slot(replies, named);

    /* The server's host has crashed, and the journal lacks the slot's last changes. */
    if (slot != NULL && slot->session == NULL && named->sequence - 1 > slot->sequence) {
        forget_lost(replies, table, slot);
        slot = NULL;
    }
    *is_remembered = slot != NULL;
    if (slot == NULL) {
        return make_slot(replies, table, named);
    }
    if (named->sequence != slot->sequence && named->sequence != slot->sequence + 1) {
        dl_fail(DL_PROTOCOL, "a hello with a change out of sequence");
        return NULL;
    }
    if (!is_large(slot)) {
        dl_list_remove(&slot->aging);
    }
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
    if (slot->op != DL_OP_QUEUE_POP || reply->value == NULL) {
        return;
    }
    slot->value = dl_blob_ref(reply->value);
    keep_large(replies, table, slot);
}

void
dl_replies_lose(dl_replies *replies, dl_table *table, dl_reply_slot *slot,
                bool is_undelivered)
{
    slot->session = NULL;
    slot->is_undelivered = is_undelivered && !slot->name.has_failed;
    begin_aging(replies, slot);
    count_slot(replies, slot);
    limit_size(replies, table, NULL);
}

static dl_reply_slot *
oldest_of(const dl_replies *replies)
{
    return dl_list_is_empty(&replies->aging)
               ? NULL
               : DL_LIST_ENTRY(replies->aging.next, dl_reply_slot, aging);
}

int64_t
dl_replies_next_wake(const dl_replies *replies)
{
    const dl_reply_slot *oldest = oldest_of(replies);

    return oldest == NULL ? INT64_MAX : oldest->since + replies->age;
}

void
dl_replies_wake(dl_replies *replies, dl_table *table, int64_t now)
{
    dl_reply_slot *slot;

    while ((slot = oldest_of(replies)) != NULL && slot->since + replies->age <= now) {
        forget_old(replies, table, slot);
    }
}
