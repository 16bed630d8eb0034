/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/table_entry.h"

#include <inttypes.h>
#include <stdlib.h>

static size_t
entry_size(size_t key_size)
{
    return sizeof(dl_table_entry) + key_size;
}

dl_status
dl_table_need_room(dl_table *table, size_t size)
{
    if (table->size_limit == 0
        || (table->size <= table->size_limit
            && size <= table->size_limit - table->size)) {
        return DL_OK;
    }
    table->size_refusals++;
    return dl_fail(DL_NO_MEMORY,
                   "the store is full: it holds %zu of %" PRIu64
                   " bytes (DISTLITE_STORE_BYTES); delete keys that are not needed",
                   table->size, table->size_limit);
}

static dl_status
need_key(dl_table *table, size_t key_size)
{
    if (table->key_limit != 0 && table->entries.count >= table->key_limit) {
        table->key_refusals++;
        return dl_fail(DL_NO_MEMORY,
                       "the store is full: it holds %zu keys, its limit "
                       "(DISTLITE_STORE_KEYS); delete keys that are not needed",
                       table->entries.count);
    }
    return dl_table_need_room(table, entry_size(key_size));
}

dl_table_entry *
dl_entry_find(const dl_table *table, dl_bytes key)
{
    dl_map_entry *node = dl_map_find(&table->entries, key);

    return node == NULL ? NULL : DL_MAP_ENTRY(node, dl_table_entry, node);
}

dl_table_entry *
dl_entry_open(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = dl_entry_find(table, key);

    if (entry != NULL || need_key(table, key.size) != DL_OK) {
        return entry;
    }
    /* The key is stored behind the entry: one allocation, and the map only
     * points to it. */
    entry = malloc(entry_size(key.size));
    if (entry == NULL) {
        dl_fail_no_memory();
        return NULL;
    }
    *entry = (dl_table_entry){0};
    if (key.size > 0) {
        memcpy(entry->key, key.data, key.size);
    }
    dl_map_insert(&table->entries, &entry->node, (dl_bytes){entry->key, key.size});
    table->size += entry_size(key.size);
    return entry;
}

void
dl_entry_release(dl_table *table, dl_table_entry *entry)
{
    dl_table_waitlist *waitlist = entry->waitlist;

    if (waitlist != NULL && waitlist->queue_size == 0
        && dl_list_is_empty(&waitlist->plain) && dl_list_is_empty(&waitlist->barrier)) {
        free(waitlist);
        entry->waitlist = NULL;
        table->size -= sizeof *waitlist;
    }
    /* Keys that were waited for in vain, and queues that were emptied, must not use
     * memory for ever: a server runs for weeks. */
    if (entry->waitlist == NULL && entry->value == NULL) {
        table->size -= entry_size(dl_map_key(&entry->node).size);
        dl_map_remove(&table->entries, &entry->node);
        free(entry);
    }
}

dl_table_entry *
dl_entry_open_waitlist(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = dl_entry_open(table, key);

    if (entry == NULL || entry->waitlist != NULL) {
        return entry;
    }
    dl_table_waitlist *waitlist = NULL;
    if (dl_table_need_room(table, sizeof *waitlist) == DL_OK) {
        waitlist = calloc(1, sizeof *waitlist);
        if (waitlist == NULL) {
            dl_fail_no_memory();
        }
    }
    if (waitlist == NULL) {
        dl_entry_release(table, entry);
        return NULL;
    }
    table->size += sizeof *waitlist;
    dl_list_init(&waitlist->plain);
    dl_list_init(&waitlist->barrier);
    dl_list_init(&waitlist->items);
    entry->waitlist = waitlist;
    return entry;
}

dl_blob *
dl_entry_take_item(dl_table *table, dl_table_entry *entry)
{
    dl_table_waitlist *waitlist = entry->waitlist;
    dl_queue_item *item = DL_LIST_ENTRY(waitlist->items.next, dl_queue_item, node);
    dl_blob *blob = item->blob;

    dl_list_remove(&item->node);
    waitlist->queue_size--;
    table->size -= dl_queue_item_size(item);
    free(item);
    return blob;
}

void
dl_entry_add_name(dl_table *table, dl_table_entry *entry)
{
    dl_list_append(&table->names, &entry->named);
    table->value_count++;
}

void
dl_entry_remove_name(dl_table *table, dl_table_entry *entry)
{
    dl_list_remove(&entry->named);
    table->value_count--;
}

dl_status
dl_table_list(const dl_table *table, dl_status (*visit)(void *, dl_bytes),
              void *context)
{
    for (const dl_list *node = table->names.next; node != &table->names;
         node = node->next) {
        DL_TRY(visit(context,
                     dl_map_key(&DL_LIST_ENTRY(node, dl_table_entry, named)->node)));
    }
    return DL_OK;
}

static dl_status
put_name(void *out, dl_bytes name)
{
    dl_put_bytes(out, name);
    return dl_buffer_check(out);
}

dl_status
dl_table_put_names(const dl_table *table, dl_buffer *out)
{
    return dl_table_list(table, put_name, out);
}

static dl_status
list_queue(const dl_table_entry *entry, dl_status (*visit)(void *, dl_bytes, dl_bytes),
           void *context)
{
    const dl_list *items = entry->waitlist == NULL ? NULL : &entry->waitlist->items;

    for (const dl_list *node = items; items != NULL && node->next != items;) {
        node = node->next;
        DL_TRY(visit(context, dl_map_key(&entry->node),
                     dl_blob_bytes(DL_LIST_ENTRY(node, dl_queue_item, node)->blob)));
    }
    return DL_OK;
}

dl_status
dl_table_list_items(const dl_table *table,
                    dl_status (*visit)(void *, dl_bytes, dl_bytes), void *context)
{
    for (dl_map_entry *node = dl_map_first(&table->entries); node != NULL;
         node = dl_map_next(&table->entries, node)) {
        DL_TRY(list_queue(DL_MAP_ENTRY(node, dl_table_entry, node), visit, context));
    }
    return DL_OK;
}
