/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Values and counters.  Every change is three steps: note in which ways the name existed,
 * change it, tell those who wait.  Whatever needs memory is fetched before anything is
 * changed, so that running out of it leaves the table as it was. */
#include "store/table.h"

#include <stdlib.h>

#include "store/counter.h"
#include "store/table_entry.h"

void
dl_table_init(dl_table *table)
{
    *table = (dl_table){0};
    dl_list_init(&table->ready);
}

static void
free_entry(dl_table_entry *entry)
{
    while (entry->lobby != NULL && entry->lobby->first != NULL) {
        dl_blob_unref(dl_table_entry_take_item(entry));
    }
    free(entry->lobby);
    dl_blob_unref(entry->value);
    free(entry);
}

void
dl_table_fini(dl_table *table)
{
    dl_map_entry *node = dl_map_first(&table->entries);

    while (node != NULL) {
        dl_map_entry *next = dl_map_next(&table->entries, node);
        free_entry(DL_MAP_ENTRY(node, dl_table_entry, node));
        node = next;
    }
    dl_map_fini(&table->entries);
    *table = (dl_table){0};
}

dl_table_entry *
dl_table_entry_find(const dl_table *table, dl_bytes key)
{
    dl_map_entry *node = dl_map_find(&table->entries, key);

    return node == NULL ? NULL : DL_MAP_ENTRY(node, dl_table_entry, node);
}

dl_table_entry *
dl_table_entry_open(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = dl_table_entry_find(table, key);

    if (entry != NULL) {
        return entry;
    }
    /* The key lies behind the entry: one allocation, and the map only points at it. */
    entry = malloc(sizeof *entry + key.size);
    if (entry != NULL) {
        *entry = (dl_table_entry){0};
        if (key.size > 0) {
            memcpy(entry->key, key.data, key.size);
        }
        dl_map_insert(&table->entries, &entry->node, (dl_bytes){entry->key, key.size});
    }
    return entry;
}

dl_presence
dl_table_entry_presence(const dl_table_entry *entry)
{
    return (dl_presence){
        .has_value = entry->value != NULL,
        .has_items = entry->lobby != NULL && entry->lobby->queue_size > 0,
    };
}

static bool
lobby_is_empty(const dl_table_lobby *lobby)
{
    return lobby->queue_size == 0 && dl_list_is_empty(&lobby->plain)
           && dl_list_is_empty(&lobby->turns) && dl_list_is_empty(&lobby->takers)
           && dl_list_is_empty(&lobby->barrier);
}

void
dl_table_entry_release(dl_table *table, dl_table_entry *entry)
{
    if (entry->lobby != NULL && lobby_is_empty(entry->lobby)) {
        free(entry->lobby);
        entry->lobby = NULL;
    }
    /* Names that were waited for in vain, and queues that were emptied, leave nothing
     * behind: a server runs for weeks. */
    if (entry->lobby == NULL && entry->value == NULL) {
        dl_map_remove(&table->entries, &entry->node);
        free(entry);
    }
}

dl_blob *
dl_table_get(const dl_table *table, dl_bytes key)
{
    const dl_table_entry *entry = dl_table_entry_find(table, key);

    return entry == NULL ? NULL : entry->value;
}

bool
dl_table_check(const dl_table *table, const dl_bytes *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const dl_table_entry *entry = dl_table_entry_find(table, keys[i]);
        if (entry == NULL) {
            return false;
        }
        dl_presence presence = dl_table_entry_presence(entry);
        if (!presence.has_value && !presence.has_items) {
            return false;
        }
    }
    return true;
}

int64_t
dl_table_num_keys(const dl_table *table)
{
    return table->value_count;
}

dl_status
dl_table_list(const dl_table *table, dl_status (*visit)(void *, dl_bytes),
              void *context)
{
    for (dl_map_entry *node = dl_map_first(&table->entries); node != NULL;
         node = dl_map_next(&table->entries, node)) {
        if (DL_MAP_ENTRY(node, dl_table_entry, node)->value != NULL) {
            DL_TRY(visit(context, dl_map_key(node)));
        }
    }
    return DL_OK;
}

dl_status
dl_table_set_blob(dl_table *table, dl_bytes key, dl_blob *value)
{
    dl_table_entry *entry = dl_table_entry_open(table, key);

    if (entry == NULL) {
        dl_blob_unref(value);
        return dl_fail_no_memory();
    }
    /* From here on nothing can fail.  Whoever is still sending the old value has a
     * reference of its own. */
    dl_presence before = dl_table_entry_presence(entry);
    table->value_count += !before.has_value;
    dl_blob_unref(entry->value);
    entry->value = value;
    dl_table_entry_changed(table, entry, before);
    dl_table_entry_release(table, entry);
    return DL_OK;
}

dl_status
dl_table_set(dl_table *table, dl_bytes key, dl_bytes value)
{
    dl_blob *blob = dl_blob_copy(value);

    return blob == NULL ? dl_fail_no_memory() : dl_table_set_blob(table, key, blob);
}

dl_status
dl_table_append(dl_table *table, dl_bytes key, dl_bytes value)
{
    dl_table_entry *entry = dl_table_entry_find(table, key);

    if (entry == NULL || entry->value == NULL) {
        return dl_table_set(table, key, value);
    }
    DL_TRY(dl_blob_append(&entry->value, value));
    /* The name existed before and does now; but a barrier looks at the value, and
     * digits that are appended count. */
    dl_table_entry_changed(table, entry, dl_table_entry_presence(entry));
    dl_table_entry_release(table, entry);
    return DL_OK;
}

dl_status
dl_table_add(dl_table *table, dl_bytes key, int64_t delta, int64_t *sum)
{
    /* The text is made first and stored like any value: waiters learn of it the same way. */
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
    dl_table_entry *entry = dl_table_entry_find(table, key);

    if (entry == NULL || entry->value == NULL) {
        return false;
    }
    dl_presence before = dl_table_entry_presence(entry);
    dl_blob_unref(entry->value);
    entry->value = NULL;
    /* The entry stays while somebody waits for it, or while its queue holds items. */
    table->value_count--;
    dl_table_entry_changed(table, entry, before);
    dl_table_entry_release(table, entry);
    return true;
}
