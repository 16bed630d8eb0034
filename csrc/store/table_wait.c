/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who waits for which key.  A waiter hangs off each of its keys by a link and counts the
 * keys that are missing; a key that comes or goes corrects the counts of its own waiters
 * and touches nobody else's.
 *
 * A wait ends in two steps: while the links of a key are walked, those whose wait is over
 * are gathered in a list of their own; only then do they leave their keys, since that
 * takes links out of the very list walked. */
#include <stdlib.h>

#include "store/counter.h"
#include "store/table.h"
#include "store/table_entry.h"

dl_table_entry *
dl_table_entry_open_lobby(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = dl_table_entry_open(table, key);

    if (entry == NULL || entry->lobby != NULL) {
        return entry;
    }
    dl_table_lobby *lobby = calloc(1, sizeof *lobby);
    if (lobby == NULL) {
        dl_table_entry_release(table, entry);
        return NULL;
    }
    dl_list_init(&lobby->plain);
    dl_list_init(&lobby->turns);
    dl_list_init(&lobby->takers);
    dl_list_init(&lobby->barrier);
    entry->lobby = lobby;
    return entry;
}

static dl_waiter *
waiter_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_wait_link, node)->waiter;
}

static dl_waiter *
first_waiter(dl_list *list)
{
    return dl_list_is_empty(list) ? NULL : waiter_of(list->next);
}

/* Leaves all keys.  `kept` is not released: the caller still uses it. */
static void
leave(dl_table *table, dl_waiter *waiter, const dl_table_entry *kept)
{
    /* Only links that hang are counted.  A key that was named twice is released twice,
     * and is not idle before its last link is gone. */
    for (size_t i = 0; i < waiter->link_count; i++) {
        dl_wait_link *link = &waiter->links[i];
        dl_list_remove(&link->node);
        if (link->entry != kept) {
            dl_table_entry_release(table, link->entry);
        }
    }
    if (waiter->links != &waiter->one_link) {
        free(waiter->links);
    }
    waiter->links = NULL;
    waiter->link_count = 0;
    waiter->is_parked = false;
}

static void
finish(dl_table *table, dl_list *over, const dl_table_entry *kept)
{
    while (!dl_list_is_empty(over)) {
        dl_list *node = over->next;
        dl_list_remove(node);
        leave(table, DL_LIST_ENTRY(node, dl_waiter, ready_node), kept);
        dl_list_append(&table->ready, node);
    }
}

static void
finish_one(dl_table *table, dl_waiter *waiter, const dl_table_entry *kept)
{
    leave(table, waiter, kept);
    dl_list_append(&table->ready, &waiter->ready_node);
}

static bool
counts_as_there(dl_wait_kind kind, dl_presence presence)
{
    return presence.has_value || (presence.has_items && kind != DL_WAIT_VALUES);
}

static void
gather_plain(dl_list *links, dl_presence before, dl_presence now, dl_list *over)
{
    /* At any time missing_count is the number of the waiter's links whose key does not
     * count as there; a parked waiter has at least one. */
    for (dl_list *node = links->next; node != links; node = node->next) {
        dl_waiter *waiter = waiter_of(node);
        bool was_there = counts_as_there(waiter->kind, before);
        bool is_there = counts_as_there(waiter->kind, now);
        if (was_there && !is_there) {
            waiter->missing_count++;
        } else if (!was_there && is_there && --waiter->missing_count == 0) {
            dl_list_append(over, &waiter->ready_node);
        }
    }
}

/* Sorted by world size, so the walk ends at the first who must go on waiting. */
static void
gather_barrier(dl_list *links, const dl_blob *value, dl_list *over)
{
    int64_t arrived;

    if (dl_list_is_empty(links) || value == NULL
        || !dl_counter_parse(dl_blob_bytes(value), &arrived)) {
        return;
    }
    for (dl_list *node = links->next; node != links; node = node->next) {
        if (waiter_of(node)->world_size > arrived) {
            return;
        }
        dl_list_append(over, &waiter_of(node)->ready_node);
    }
}

void
dl_table_entry_changed(dl_table *table, dl_table_entry *entry, dl_presence before)
{
    dl_table_lobby *lobby = entry->lobby;
    dl_presence now = dl_table_entry_presence(entry);
    dl_list over;

    if (lobby == NULL) {
        return;
    }
    dl_list_init(&over);
    if (before.has_value != now.has_value || before.has_items != now.has_items) {
        gather_plain(&lobby->plain, before, now, &over);
    }
    /* A value can be read by all of them; only items are one each. */
    if (now.has_value && !before.has_value) {
        for (dl_list *node = lobby->turns.next; node != &lobby->turns;
             node = node->next) {
            dl_list_append(&over, &waiter_of(node)->ready_node);
        }
    }
    gather_barrier(&lobby->barrier, entry->value, &over);
    finish(table, &over, entry);
}

void
dl_table_entry_turn(dl_table *table, dl_table_entry *entry)
{
    dl_waiter *waiter = first_waiter(&entry->lobby->turns);

    if (waiter != NULL) {
        finish_one(table, waiter, entry);
    }
}

void
dl_table_entry_pushed(dl_table *table, dl_table_entry *entry)
{
    dl_waiter *taker = first_waiter(&entry->lobby->takers);

    if (taker == NULL) {
        dl_table_entry_turn(table, entry);
        return;
    }
    /* Handed over here and now: between a wake-up and a second request somebody else
     * could take the item. */
    dl_presence before = dl_table_entry_presence(entry);
    taker->item = dl_table_entry_take_item(entry);
    finish_one(table, taker, entry);
    dl_table_entry_changed(table, entry, before);
}

dl_waiter *
dl_table_take_ready(dl_table *table)
{
    if (dl_list_is_empty(&table->ready)) {
        return NULL;
    }
    dl_list *node = table->ready.next;
    dl_list_remove(node);
    return DL_LIST_ENTRY(node, dl_waiter, ready_node);
}

void
dl_table_cancel(dl_table *table, dl_waiter *waiter)
{
    if (waiter->is_parked) {
        leave(table, waiter, NULL);
    }
    dl_list_remove(&waiter->ready_node);
}

static void
hang(dl_table_lobby *lobby, dl_wait_link *link)
{
    const dl_waiter *waiter = link->waiter;

    switch (waiter->kind) {
    case DL_WAIT_KEYS:
    case DL_WAIT_VALUES:
        dl_list_append(&lobby->plain, &link->node);
        break;
    case DL_WAIT_TURN:
        dl_list_append(&lobby->turns, &link->node);
        break;
    case DL_WAIT_ITEM:
        dl_list_append(&lobby->takers, &link->node);
        break;
    case DL_WAIT_BARRIER: {
        /* Nearly always all wait for one world size: found at the first look. */
        dl_list *place = &lobby->barrier;
        while (place->previous != &lobby->barrier
               && waiter_of(place->previous)->world_size > waiter->world_size) {
            place = place->previous;
        }
        dl_list_append(place, &link->node);
        break;
    }
    }
}

/* Hangs the waiter off all keys, or fails and off none. */
static dl_status
park(dl_table *table, dl_waiter *waiter, const dl_bytes *keys, size_t count)
{
    waiter->links = &waiter->one_link;
    if (count > 1) {
        waiter->links = calloc(count, sizeof *waiter->links);
        if (waiter->links == NULL) {
            return dl_fail_no_memory();
        }
    }
    waiter->is_parked = true;
    for (size_t i = 0; i < count; i++) {
        dl_wait_link *link = &waiter->links[i];
        link->waiter = waiter;
        link->entry = dl_table_entry_open_lobby(table, keys[i]);
        if (link->entry == NULL) {
            leave(table, waiter, NULL);
            return dl_fail_no_memory();
        }
        hang(link->entry->lobby, link);
        /* Counted as soon as it hangs, so that leave() undoes what was done and no
         * more. */
        waiter->link_count++;
        waiter->missing_count +=
            !counts_as_there(waiter->kind, dl_table_entry_presence(link->entry));
    }
    return DL_OK;
}

static bool
is_over(dl_table *table, dl_waiter *waiter, const dl_bytes *keys, size_t count)
{
    if (waiter->kind == DL_WAIT_ITEM) {
        return dl_table_queue_pop(table, keys[0], &waiter->item) > 0;
    }
    if (waiter->kind != DL_WAIT_VALUES) {
        return dl_table_check(table, keys, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (dl_table_get(table, keys[i]) == NULL) {
            return false;
        }
    }
    return true;
}

dl_status
dl_table_wait(dl_table *table, dl_waiter *waiter, dl_wait_kind kind,
              const dl_bytes *keys, size_t count)
{
    *waiter = (dl_waiter){.kind = kind};
    return is_over(table, waiter, keys, count) ? DL_OK
                                               : park(table, waiter, keys, count);
}

dl_status
dl_table_barrier(dl_table *table, dl_waiter *waiter, dl_bytes key, int64_t world_size)
{
    int64_t arrived;

    *waiter = (dl_waiter){.kind = DL_WAIT_BARRIER, .world_size = world_size};
    /* Parked first, so that running out of memory cannot follow the counting. */
    DL_TRY(park(table, waiter, &key, 1));
    dl_status status = dl_table_add(table, key, 1, &arrived);
    if (status != DL_OK) {
        leave(table, waiter, NULL);
        return status;
    }
    /* If that made itself ready, the caller learns it here and not from the list. */
    dl_list_remove(&waiter->ready_node);
    return DL_OK;
}
