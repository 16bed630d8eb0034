/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/table_waiters.h"

#include <stdlib.h>

#include "store/counter.h"

/* Waiting.  A waiter is linked to each of its keys and counts the missing ones.
 * A key that appears or disappears updates the counts of its own waiters and
 * touches no others.
 *
 * A wait ends in two steps: while the links of a key are traversed, waiters whose wait
 * has ended are collected in a separate list; only then are they unlinked from their
 * keys, since that removes links from the list being traversed. */

static dl_waiter *
waiter_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_wait_link, node)->waiter;
}

void
dl_waiter_leave(dl_table *table, dl_waiter *waiter, const dl_table_entry *kept)
{
    /* link_count only counts links that are in a list.  For a key that was named twice,
     * dl_entry_release() does nothing before its last link is removed. */
    for (size_t i = 0; i < waiter->link_count; i++) {
        dl_wait_link *link = &waiter->links[i];
        dl_list_remove(&link->node);
        if (link->entry != kept) {
            dl_entry_release(table, link->entry);
        }
    }
    if (waiter->links != &waiter->one_link) {
        table->size -= waiter->link_count * sizeof *waiter->links;
        free(waiter->links);
    }
    waiter->links = NULL;
    waiter->link_count = 0;
    waiter->is_parked = false;
    table->waiter_count--;
}

static void
finish(dl_table *table, dl_list *over, const dl_table_entry *kept)
{
    while (!dl_list_is_empty(over)) {
        dl_list *node = over->next;
        dl_list_remove(node);
        dl_waiter_leave(table, DL_LIST_ENTRY(node, dl_waiter, ready_node), kept);
        dl_list_append(&table->ready, node);
    }
}

bool
dl_wait_is_met(dl_wait_kind kind, dl_presence presence)
{
    switch (kind) {
    case DL_WAIT_VALUES:
        return presence.has_value;
    case DL_WAIT_ITEMS:
        return presence.has_items;
    default:
        return presence.has_value || presence.has_items;
    }
}

static void
gather_plain(dl_list *links, dl_presence before, dl_presence now, dl_list *over)
{
    /* Invariant: missing_count is the number of the waiter's links whose key does not
     * count as present; it is at least 1 while the waiter is parked. */
    for (dl_list *node = links->next; node != links; node = node->next) {
        dl_waiter *waiter = waiter_of(node);
        bool was_there = dl_wait_is_met(waiter->kind, before);
        bool is_there = dl_wait_is_met(waiter->kind, now);
        if (was_there && !is_there) {
            waiter->missing_count++;
        } else if (!was_there && is_there && --waiter->missing_count == 0) {
            dl_list_append(over, &waiter->ready_node);
        }
    }
}

/* The links are sorted by world size, so the loop ends at the first that must
 * still wait. */
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
dl_entry_changed(dl_table *table, dl_table_entry *entry, dl_presence before)
{
    dl_table_waitlist *waitlist = entry->waitlist;
    dl_presence now = dl_entry_presence(entry);
    dl_list over;

    if (waitlist == NULL) {
        return;
    }
    dl_list_init(&over);
    if (before.has_value != now.has_value || before.has_items != now.has_items) {
        gather_plain(&waitlist->plain, before, now, &over);
    }
    gather_barrier(&waitlist->barrier, entry->value, &over);
    finish(table, &over, entry);
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
        dl_waiter_leave(table, waiter, NULL);
    }
    dl_list_remove(&waiter->ready_node);
}

static void
link_waiter(dl_table_waitlist *waitlist, dl_wait_link *link)
{
    const dl_waiter *waiter = link->waiter;

    switch (waiter->kind) {
    case DL_WAIT_KEYS:
    case DL_WAIT_VALUES:
    case DL_WAIT_ITEMS:
        dl_list_append(&waitlist->plain, &link->node);
        break;
    case DL_WAIT_BARRIER: {
        /* Usually all members give the same world size: the last place fits at once. */
        dl_list *place = &waitlist->barrier;
        while (place->previous != &waitlist->barrier
               && waiter_of(place->previous)->world_size > waiter->world_size) {
            place = place->previous;
        }
        dl_list_append(place, &link->node);
        break;
    }
    }
}

dl_status
dl_waiter_park(dl_table *table, dl_waiter *waiter, const dl_bytes *keys, size_t count)
{
    waiter->links = &waiter->one_link;
    if (count > 1) {
        DL_TRY(dl_table_need_room(table, count * sizeof *waiter->links));
        waiter->links = calloc(count, sizeof *waiter->links);
        if (waiter->links == NULL) {
            return dl_fail_no_memory();
        }
    }
    waiter->is_parked = true;
    table->waiter_count++;
    for (size_t i = 0; i < count; i++) {
        dl_wait_link *link = &waiter->links[i];
        link->waiter = waiter;
        link->entry = dl_entry_open_waitlist(table, keys[i]);
        if (link->entry == NULL) {
            dl_waiter_leave(table, waiter, NULL);
            return DL_NO_MEMORY;
        }
        link_waiter(link->entry->waitlist, link);
        /* Counted as soon as it is linked, so that dl_waiter_leave() undoes exactly what was
         * done. */
        waiter->link_count++;
        table->size += count > 1 ? sizeof *link : 0;
        waiter->missing_count +=
            !dl_wait_is_met(waiter->kind, dl_entry_presence(link->entry));
    }
    return DL_OK;
}
