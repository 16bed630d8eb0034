/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Values and counters, and queues.
 *
 * Every change has three steps: record how the name exists, change it, notify its
 * waiters.  All memory is allocated before anything is changed, so that a failed
 * allocation leaves the table unchanged. */
#include "store/table.h"

#include <stdlib.h>

#include "store/counter.h"
#include "store/table_entry.h"
#include "store/table_waiters.h"

/* Provides the memory for the record of a change, so that recording it does not
 * fail. */
static dl_status
need_record(const dl_table *table, size_t key_size, size_t value_size)
{
    return dl_change_reserve(table->changes,
                             DL_CHANGE_OVERHEAD + key_size + value_size);
}

static void
record_change(const dl_table *table, dl_change change)
{
    if (table->changes != NULL) {
        dl_change_put(table->changes, change);
    }
}

void
dl_table_init(dl_table *table)
{
    *table = (dl_table){0};
    dl_list_init(&table->ready);
    dl_list_init(&table->names);
}

static void
free_entry(dl_table *table, dl_table_entry *entry)
{
    while (dl_entry_has_items(entry)) {
        dl_blob_unref(dl_entry_take_item(table, entry));
    }
    free(entry->waitlist);
    dl_blob_unref(entry->value);
    free(entry);
}

void
dl_table_fini(dl_table *table)
{
    dl_map_entry *node = dl_map_first(&table->entries);

    while (node != NULL) {
        dl_map_entry *next = dl_map_next(&table->entries, node);
        free_entry(table, DL_MAP_ENTRY(node, dl_table_entry, node));
        node = next;
    }
    dl_map_fini(&table->entries);
    *table = (dl_table){0};
}

dl_blob *
dl_table_get(const dl_table *table, dl_bytes key)
{
    const dl_table_entry *entry = dl_entry_find(table, key);

    return entry == NULL ? NULL : entry->value;
}

bool
dl_table_has(const dl_table *table, dl_bytes key)
{
    const dl_table_entry *entry = dl_entry_find(table, key);

    return entry != NULL && dl_entry_exists(entry);
}

int64_t
dl_table_num_keys(const dl_table *table)
{
    return table->value_count;
}

/* Does what follows a change of the entry's value; cannot fail. */
static void
value_changed(dl_table *table, dl_table_entry *entry)
{
    record_change(table, (dl_change){
                             .kind = DL_CHANGE_SET,
                             .key = dl_map_key(&entry->node),
                             .value = dl_blob_bytes(entry->value),
                         });
    dl_entry_changed(table, entry);
    dl_entry_release(table, entry);
}

dl_status
dl_table_set_blob(dl_table *table, dl_bytes key, dl_blob *value)
{
    dl_table_entry *entry = dl_entry_open(table, key);

    if (entry == NULL) {
        dl_blob_unref(value);
        return DL_NO_MEMORY;
    }
    /* Replacing a value by one that is no larger always succeeds. */
    size_t old_size = dl_table_blob_size(entry->value);
    size_t new_size = dl_table_blob_size(value);
    if ((new_size > old_size && dl_table_need_room(table, new_size - old_size) != DL_OK)
        || need_record(table, key.size, value->size) != DL_OK) {
        dl_blob_unref(value);
        dl_entry_release(table, entry);
        return DL_NO_MEMORY;
    }
    table->size += new_size - old_size;
    /* Nothing can fail from here on.  A reply that still sends the old value has a
     * reference of its own. */
    if (entry->value == NULL) {
        dl_entry_add_name(table, entry);
    }
    dl_blob_unref(entry->value);
    entry->value = value;
    value_changed(table, entry);
    return DL_OK;
}

/* Returns whether `size` bytes can be written into the memory of the value: nobody else
 * reads it, and at most half of it would stay unused. */
static bool
can_overwrite(const dl_blob *value, size_t size)
{
    return value != NULL && size <= value->capacity && size >= value->capacity / 2
           && dl_blob_is_unique(value);
}

/* A value that is replaced by one like it, such as a counter, costs no allocation. */
dl_status
dl_table_set(dl_table *table, dl_bytes key, dl_bytes value)
{
    dl_table_entry *entry = dl_entry_find(table, key);

    if (entry != NULL && can_overwrite(entry->value, value.size)) {
        DL_TRY(need_record(table, key.size, value.size));
        if (value.size > 0) {
            memmove(entry->value->data, value.data, value.size);
        }
        entry->value->size = value.size;
        value_changed(table, entry);
        return DL_OK;
    }
    dl_blob *blob = dl_blob_copy(value);

    return blob == NULL ? dl_fail_no_memory() : dl_table_set_blob(table, key, blob);
}

dl_status
dl_table_append(dl_table *table, dl_bytes key, dl_bytes value)
{
    dl_table_entry *entry = dl_entry_find(table, key);

    if (entry == NULL || entry->value == NULL) {
        return dl_table_set(table, key, value);
    }
    size_t old_size = dl_table_blob_size(entry->value);
    DL_TRY(dl_table_need_room(table, value.size));
    DL_TRY(need_record(table, key.size, value.size));
    DL_TRY(dl_blob_append(&entry->value, value));
    record_change(table,
                  (dl_change){.kind = DL_CHANGE_APPEND, .key = key, .value = value});
    table->size += dl_table_blob_size(entry->value) - old_size;
    /* A barrier depends on the value, which appended digits change. */
    dl_entry_changed(table, entry);
    dl_entry_release(table, entry);
    return DL_OK;
}

dl_status
dl_table_add(dl_table *table, dl_bytes key, int64_t delta, int64_t *sum)
{
    /* The text is stored like any value, so that waiters are notified in
     * the same way. */
    const dl_blob *held = dl_table_get(table, key);
    char text[DL_COUNTER_TEXT_SIZE + 1];
    int64_t total = delta;

    if (held != NULL) {
        DL_TRY(dl_counter_add(key, dl_blob_bytes(held), delta, &total));
    }
    DL_TRY(dl_table_set(table, key, dl_counter_format(total, text)));
    *sum = total;
    return DL_OK;
}

dl_status
dl_table_compare_set(dl_table *table, dl_bytes key, dl_bytes expected, dl_bytes desired,
                     dl_blob **held)
{
    dl_blob *current = dl_table_get(table, key);
    bool is_match = current == NULL ? expected.size == 0
                                    : dl_bytes_equal(dl_blob_bytes(current), expected);

    if (is_match) {
        DL_TRY(dl_table_set(table, key, desired));
        current = dl_table_get(table, key);
    }
    *held = current;
    return DL_OK;
}

bool
dl_table_delete(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = dl_entry_find(table, key);

    if (entry == NULL || entry->value == NULL) {
        return false;
    }
    record_change(table, (dl_change){.kind = DL_CHANGE_DELETE, .key = key});
    table->size -= dl_table_blob_size(entry->value);
    dl_blob_unref(entry->value);
    entry->value = NULL;
    dl_entry_remove_name(table, entry);
    dl_entry_release(table, entry);
    return true;
}

/* Takes over the reference to `blob`, also on failure; NULL is a failed allocation. */
static dl_status
put_item(dl_table *table, dl_bytes key, dl_blob *blob, bool is_first)
{
    /* Everything that can fail comes first. */
    dl_queue_item *item = malloc(sizeof *item);
    dl_table_entry *entry = NULL;

    if (blob == NULL || item == NULL) {
        dl_fail_no_memory();
    } else if (dl_table_need_room(table, sizeof *item + dl_table_blob_size(blob))
                   == DL_OK
               && need_record(table, key.size, blob->size) == DL_OK) {
        entry = dl_entry_open_waitlist(table, key);
    }
    if (entry == NULL) {
        dl_blob_unref(blob);
        free(item);
        return DL_NO_MEMORY;
    }
    *item = (dl_queue_item){.blob = blob};
    table->size += dl_queue_item_size(item);
    dl_list *items = &entry->waitlist->items;
    dl_list_append(is_first ? items->next : items, &item->node);
    entry->waitlist->queue_size++;
    record_change(table, (dl_change){
                             .kind = is_first ? DL_CHANGE_PUT_BACK : DL_CHANGE_PUSH,
                             .key = key,
                             .number = entry->waitlist->queue_size,
                             .value = dl_blob_bytes(blob),
                         });
    dl_entry_changed(table, entry);
    dl_entry_release(table, entry);
    return DL_OK;
}

dl_status
dl_table_queue_push(dl_table *table, dl_bytes key, dl_bytes value)
{
    return put_item(table, key, dl_blob_copy(value), false);
}

dl_status
dl_table_queue_put_back(dl_table *table, dl_bytes key, dl_blob *item)
{
    return put_item(table, key, item, true);
}

int64_t
dl_table_queue_size(const dl_table *table, dl_bytes key)
{
    const dl_table_entry *entry = dl_entry_find(table, key);

    return entry == NULL || !dl_entry_has_items(entry) ? 0
                                                       : entry->waitlist->queue_size;
}

int64_t
dl_table_queue_pop(dl_table *table, dl_bytes key, dl_blob **item)
{
    dl_table_entry *entry = dl_entry_find(table, key);

    if (entry == NULL || !dl_entry_has_items(entry)) {
        return 0;
    }
    int64_t size = entry->waitlist->queue_size;
    *item = dl_entry_take_item(table, entry);
    record_change(table, (dl_change){
                             .kind = DL_CHANGE_POP,
                             .key = key,
                             .number = entry->waitlist->queue_size,
                         });
    dl_entry_release(table, entry);
    return size;
}

dl_status
dl_table_apply(dl_table *table, const dl_change *change, dl_blob **popped)
{
    switch (change->kind) {
    case DL_CHANGE_SET:
        return dl_table_set(table, change->key, change->value);
    case DL_CHANGE_APPEND:
        return dl_table_append(table, change->key, change->value);
    case DL_CHANGE_DELETE:
        (void)dl_table_delete(table, change->key);
        break;
    case DL_CHANGE_PUSH:
        return dl_table_queue_push(table, change->key, change->value);
    case DL_CHANGE_PUT_BACK:
        return dl_table_queue_size(table, change->key) == change->number - 1
                   ? dl_table_queue_put_back(table, change->key,
                                             dl_blob_copy(change->value))
                   : DL_OK;
    case DL_CHANGE_POP:
        for (int64_t size = dl_table_queue_size(table, change->key);
             size > 0 && size > change->number; size--) {
            dl_blob_unref(*popped);
            (void)dl_table_queue_pop(table, change->key, popped);
        }
        break;
    case DL_CHANGE_REPLY:
    case DL_CHANGE_FORGET:
        break;
    }
    return DL_OK;
}

dl_status
dl_table_wait(dl_table *table, dl_waiter *waiter, dl_wait_kind kind,
              const dl_bytes *keys, size_t count)
{
    *waiter = (dl_waiter){.kind = kind, .keys = keys, .count = count};
    DL_TRY(dl_waiter_advance(table, waiter));
    waiter->is_parked = waiter->entry != NULL;
    return DL_OK;
}

dl_status
dl_table_barrier(dl_table *table, dl_waiter *waiter, dl_bytes key, int64_t world_size,
                 bool is_counted)
{
    dl_status status = DL_OK;
    int64_t arrived;

    *waiter = (dl_waiter){.kind = DL_WAIT_BARRIER, .world_size = world_size};
    /* Linked first, so that no allocation can fail after the counter was
     * incremented. */
    DL_TRY(dl_waiter_link(table, waiter, key));
    if (is_counted) {
        dl_table_entry *entry = waiter->entry;
        dl_entry_changed(table, entry);
        dl_entry_release(table, entry);
    } else {
        status = dl_table_add(table, key, 1, &arrived);
    }
    /* If its wait is over already, the caller is told here and not by the ready list. */
    if (status == DL_OK && waiter->entry != NULL) {
        waiter->is_parked = true;
    } else {
        dl_table_cancel(table, waiter);
    }
    return status;
}
