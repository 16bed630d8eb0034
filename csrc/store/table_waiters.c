/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/table_waiters.h"

#include "store/counter.h"

static dl_waiter *
waiter_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_waiter, node);
}

/* Unlinks the waiter, whose wait may go on. */
static void
unlink_waiter(dl_table *table, dl_waiter *waiter)
{
    dl_list_remove(&waiter->node);
    waiter->entry = NULL;
    table->waiter_count--;
}

/* The waiter has what it needs of the key that it is linked to: it never looks that one
 * up again, so that a key which comes and goes costs it nothing more. */
static void
make_ready(dl_table *table, dl_waiter *waiter)
{
    unlink_waiter(table, waiter);
    waiter->next++;
    dl_list_append(&table->ready, &waiter->node);
}

static bool
is_met(dl_wait_kind kind, const dl_table_entry *entry)
{
    switch (kind) {
    case DL_WAIT_VALUES:
        return entry->value != NULL;
    case DL_WAIT_ITEMS:
        return dl_entry_has_items(entry);
    default:
        return dl_entry_exists(entry);
    }
}

/* Returns how many have arrived at a barrier; INT64_MIN if the value is no counter. */
static int64_t
count_arrived(const dl_blob *value)
{
    int64_t arrived;

    return value != NULL && dl_counter_parse(dl_blob_bytes(value), &arrived)
               ? arrived
               : INT64_MIN;
}

void
dl_entry_changed(dl_table *table, const dl_table_entry *entry)
{
    dl_table_waitlist *waitlist = entry->waitlist;

    if (waitlist == NULL) {
        return;
    }
    for (dl_list *node = waitlist->plain.next, *next; node != &waitlist->plain;
         node = next) {
        next = node->next;
        if (is_met(waiter_of(node)->kind, entry)) {
            make_ready(table, waiter_of(node));
        }
    }
    if (dl_list_is_empty(&waitlist->barrier)) {
        return;
    }
    int64_t arrived = count_arrived(entry->value);
    /* They are sorted by world size: the first that must still wait is followed by others
     * that must. */
    while (!dl_list_is_empty(&waitlist->barrier)
           && waiter_of(waitlist->barrier.next)->world_size <= arrived) {
        make_ready(table, waiter_of(waitlist->barrier.next));
    }
}

/* Returns where a waiter of this world size belongs in the list.  Usually all members give
 * the same one: the last place fits at once. */
static dl_list *
place_in_barrier(dl_list *barrier, int64_t world_size)
{
    dl_list *place = barrier;

    while (place->previous != barrier
           && waiter_of(place->previous)->world_size > world_size) {
        place = place->previous;
    }
    return place;
}

dl_status
dl_waiter_link(dl_table *table, dl_waiter *waiter, dl_bytes key)
{
    dl_table_entry *entry = dl_entry_open_waitlist(table, key);

    if (entry == NULL) {
        return DL_NO_MEMORY;
    }
    waiter->entry = entry;
    dl_list_append(waiter->kind == DL_WAIT_BARRIER
                       ? place_in_barrier(&entry->waitlist->barrier, waiter->world_size)
                       : &entry->waitlist->plain,
                   &waiter->node);
    table->waiter_count++;
    return DL_OK;
}

dl_status
dl_waiter_advance(dl_table *table, dl_waiter *waiter)
{
    for (; waiter->next < waiter->count; waiter->next++) {
        dl_bytes key = waiter->keys[waiter->next];
        const dl_table_entry *entry = dl_entry_find(table, key);
        if (entry == NULL || !is_met(waiter->kind, entry)) {
            return dl_waiter_link(table, waiter, key);
        }
    }
    return DL_OK;
}

dl_waiter *
dl_table_take_ready(dl_table *table)
{
    while (!dl_list_is_empty(&table->ready)) {
        dl_waiter *waiter = waiter_of(table->ready.next);
        dl_list_remove(&waiter->node);
        waiter->status = dl_waiter_advance(table, waiter);
        if (waiter->entry == NULL) {
            waiter->is_parked = false;
            return waiter;
        }
    }
    return NULL;
}

void
dl_table_cancel(dl_table *table, dl_waiter *waiter)
{
    dl_table_entry *entry = waiter->entry;

    waiter->is_parked = false;
    if (entry != NULL) {
        unlink_waiter(table, waiter);
        dl_entry_release(table, entry);
    }
    dl_list_remove(&waiter->node);
}
