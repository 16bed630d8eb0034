/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Queues: a list of items per name, in its lobby. */
#include <stdlib.h>

#include "store/table.h"
#include "store/table_entry.h"

static void
append_item(dl_table_lobby *lobby, dl_queue_item *item)
{
    if (lobby->last == NULL) {
        lobby->first = item;
    } else {
        lobby->last->next = item;
    }
    lobby->last = item;
    lobby->queue_size++;
}

dl_blob *
dl_table_entry_take_item(dl_table_entry *entry)
{
    dl_table_lobby *lobby = entry->lobby;
    dl_queue_item *item = lobby->first;
    dl_blob *blob = item->blob;

    lobby->first = item->next;
    if (lobby->first == NULL) {
        lobby->last = NULL;
    }
    lobby->queue_size--;
    free(item);
    return blob;
}

dl_status
dl_table_queue_push(dl_table *table, dl_bytes key, dl_bytes value)
{
    /* All that can fail comes first. */
    dl_blob *blob = dl_blob_copy(value);
    dl_queue_item *item = malloc(sizeof *item);
    dl_table_entry *entry = NULL;

    if (blob != NULL && item != NULL) {
        entry = dl_table_entry_open_lobby(table, key);
    }
    if (entry == NULL) {
        dl_blob_unref(blob);
        free(item);
        return dl_fail_no_memory();
    }
    dl_presence before = dl_table_entry_presence(entry);
    *item = (dl_queue_item){.blob = blob};
    append_item(entry->lobby, item);
    /* Who merely looks at the name sees it exist, if only for this moment. */
    dl_table_entry_changed(table, entry, before);
    dl_table_entry_pushed(table, entry);
    dl_table_entry_release(table, entry);
    return DL_OK;
}

int64_t
dl_table_queue_size(const dl_table *table, dl_bytes key)
{
    const dl_table_entry *entry = dl_table_entry_find(table, key);

    return entry == NULL || entry->lobby == NULL ? 0 : entry->lobby->queue_size;
}

int64_t
dl_table_queue_pop(dl_table *table, dl_bytes key, dl_blob **item)
{
    dl_table_entry *entry = dl_table_entry_find(table, key);

    if (entry == NULL || entry->lobby == NULL || entry->lobby->queue_size == 0) {
        return 0;
    }
    int64_t size = entry->lobby->queue_size;
    dl_presence before = dl_table_entry_presence(entry);
    /* The last item may end the name's existence: those who wait for several keys have
     * one more to wait for. */
    *item = dl_table_entry_take_item(entry);
    dl_table_entry_changed(table, entry, before);
    dl_table_entry_release(table, entry);
    return size;
}

void
dl_table_queue_pass_on(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = dl_table_entry_find(table, key);

    if (entry != NULL && dl_table_entry_presence(entry).has_items) {
        dl_table_entry_turn(table, entry);
    }
}
