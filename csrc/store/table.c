/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Values and counters, queues, and waiters.
 *
 * Every change has three steps: record how the name exists, change it, notify its
 * waiters.  All memory is allocated before anything is changed, so that a failed
 * allocation leaves the table unchanged. */
#include "store/table.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/deadline.h"
#include "store/counter.h"

/* A longer time to live counts as this one, of more than seventy years, so that no sum
 * overflows. */
#define TTL_MAX (INT64_MAX / 4 / DL_MILLISECOND)

typedef struct dl_queue_item {
    struct dl_queue_item *next;
    struct dl_queue_item *previous; /* an older one */
    int64_t number;                 /* one more than that of the previous one */
    dl_blob *blob;
} dl_queue_item;

/* Most entries are just a value: what is needed for waiting and for queues is in a
 * waitlist, which is allocated on demand.  Its lists hold the links of waiters,
 * earliest first; those of a barrier are sorted by world size. */
typedef struct dl_table_waitlist {
    dl_list plain;  /* DL_WAIT_KEYS and DL_WAIT_VALUES */
    dl_list takers; /* DL_WAIT_ITEM: only while the queue is empty */
    dl_list barrier;
    dl_queue_item *first; /* the oldest */
    dl_queue_item *last;
    int64_t queue_size;
    dl_list queued; /* in the table's list of queues, while there are items */
    const struct dl_table_entry *entry;
} dl_table_waitlist;

typedef struct dl_table_entry {
    dl_map_entry node;
    dl_list named;  /* in the table's list of names, while there is a value */
    dl_blob *value; /* NULL: none */
    dl_table_waitlist *waitlist; /* NULL: no waiters, and the queue is empty */
    size_t end_place; /* in the heap of ends, from 1; 0: the value has none */
    uint8_t key[];
} dl_table_entry;

/* The two ways in which a name can exist. */
typedef struct dl_presence {
    bool has_value;
    bool has_items;
} dl_presence;

/* Sizes as they are counted for the table's limit. */

static size_t
blob_size(const dl_blob *blob)
{
    return blob == NULL ? 0 : sizeof *blob + blob->capacity;
}

static size_t
item_size(const dl_queue_item *item)
{
    return sizeof *item + blob_size(item->blob);
}

static size_t
entry_size(size_t key_size)
{
    return sizeof(dl_table_entry) + key_size;
}

/* Checks whether `size` more bytes fit the limit. */
static dl_status
need_room(dl_table *table, size_t size)
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
    return need_room(table, entry_size(key_size));
}

/* Provides the memory for the record of a change, so that recording it does not
 * fail. */
static dl_status
need_record(const dl_table *table, size_t key_size, size_t value_size)
{
    return dl_change_reserve(table->changes,
                             DL_CHANGE_OVERHEAD + key_size + value_size);
}

static void
record(const dl_table *table, dl_change change)
{
    if (table->changes != NULL) {
        dl_change_put(table->changes, change);
    }
}

static void
pass_cursor(dl_table_cursor *cursor)
{
    cursor->next = cursor->next->next;
    cursor->item = NULL;
    cursor->left--;
}

/* Moves cursors on whose next name or queue is about to leave its list. */
static void
pass_cursors(const dl_table *table, const dl_list *leaving)
{
    for (dl_list *node = table->cursors.next; node != &table->cursors;
         node = node->next) {
        dl_table_cursor *cursor = DL_LIST_ENTRY(node, dl_table_cursor, node);
        if (cursor->next == leaving) {
            pass_cursor(cursor);
        }
    }
}

/* Moves cursors on whose next item is about to leave its queue: there is none before
 * it. */
static void
pass_item_cursors(const dl_table *table, const dl_queue_item *leaving)
{
    for (dl_list *node = table->cursors.next; node != &table->cursors;
         node = node->next) {
        dl_table_cursor *cursor = DL_LIST_ENTRY(node, dl_table_cursor, node);
        if (cursor->item == leaving) {
            pass_cursor(cursor);
        }
    }
}

/* Removes the oldest item; the queue must not be empty.  The caller owns the
 * reference. */
static dl_blob *
take_item(dl_table *table, dl_table_entry *entry)
{
    dl_table_waitlist *waitlist = entry->waitlist;
    dl_queue_item *item = waitlist->first;
    dl_blob *blob = item->blob;

    pass_item_cursors(table, item);
    waitlist->first = item->next;
    if (waitlist->first == NULL) {
        waitlist->last = NULL;
        pass_cursors(table, &waitlist->queued);
        dl_list_remove(&waitlist->queued);
        table->queue_count--;
    } else {
        waitlist->first->previous = NULL;
    }
    waitlist->queue_size--;
    table->size -= item_size(item);
    free(item);
    return blob;
}

void
dl_table_init(dl_table *table)
{
    *table = (dl_table){0};
    dl_list_init(&table->ready);
    dl_list_init(&table->names);
    dl_list_init(&table->queues);
    dl_list_init(&table->cursors);
}

static void
free_entry(dl_table *table, dl_table_entry *entry)
{
    while (entry->waitlist != NULL && entry->waitlist->first != NULL) {
        dl_blob_unref(take_item(table, entry));
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
    free(table->ends);
    *table = (dl_table){0};
}

/* The heap of ends.  No end is before the one at half its place. */

static void
place_end(dl_table *table, size_t place, dl_table_end end)
{
    table->ends[place - 1] = end;
    end.entry->end_place = place;
}

static void
raise_end(dl_table *table, size_t place, dl_table_end end)
{
    while (place > 1 && table->ends[place / 2 - 1].at > end.at) {
        place_end(table, place, table->ends[place / 2 - 1]);
        place /= 2;
    }
    place_end(table, place, end);
}

static void
sink_end(dl_table *table, size_t place, dl_table_end end)
{
    for (size_t child; (child = 2 * place) <= table->end_count; place = child) {
        child += child < table->end_count
                 && table->ends[child].at < table->ends[child - 1].at;
        if (table->ends[child - 1].at >= end.at) {
            break;
        }
        place_end(table, place, table->ends[child - 1]);
    }
    place_end(table, place, end);
}

static void
move_end(dl_table *table, size_t place, dl_table_end end)
{
    if (place > 1 && table->ends[place / 2 - 1].at > end.at) {
        raise_end(table, place, end);
    } else {
        sink_end(table, place, end);
    }
}

/* Provides the memory for one more end, so that put_end() does not fail. */
static dl_status
need_end(dl_table *table)
{
    size_t capacity = table->end_capacity == 0 ? 8 : 2 * table->end_capacity;
    size_t more = (capacity - table->end_capacity) * sizeof *table->ends;

    if (table->end_count < table->end_capacity) {
        return DL_OK;
    }
    DL_TRY(need_room(table, more));
    dl_table_end *ends = realloc(table->ends, capacity * sizeof *ends);
    if (ends == NULL) {
        return dl_fail_no_memory();
    }
    table->ends = ends;
    table->end_capacity = capacity;
    table->size += more;
    return DL_OK;
}

/* Sets when the entry's value ends. */
static void
put_end(dl_table *table, dl_table_entry *entry, int64_t at)
{
    const dl_table_end end = {at, entry};

    if (entry->end_place != 0) {
        move_end(table, entry->end_place, end);
    } else {
        raise_end(table, ++table->end_count, end);
    }
}

static void
drop_end(dl_table *table, dl_table_entry *entry)
{
    size_t place = entry->end_place;

    if (place == 0) {
        return;
    }
    dl_table_end last = table->ends[--table->end_count];
    entry->end_place = 0;
    if (last.entry != entry) {
        move_end(table, place, last);
    }
    if (table->end_count == 0) {
        table->size -= table->end_capacity * sizeof *table->ends;
        free(table->ends);
        table->ends = NULL;
        table->end_capacity = 0;
    }
}

/* Returns whether the value has ended and was not removed yet. */
static bool
has_ended(const dl_table *table, const dl_table_entry *entry)
{
    return entry->end_place != 0 && table->ends[entry->end_place - 1].at <= table->now;
}

static dl_blob *
value_of(const dl_table *table, const dl_table_entry *entry)
{
    return entry == NULL || has_ended(table, entry) ? NULL : entry->value;
}

static dl_table_entry *
entry_find(const dl_table *table, dl_bytes key)
{
    dl_map_entry *node = dl_map_find(&table->entries, key);

    return node == NULL ? NULL : DL_MAP_ENTRY(node, dl_table_entry, node);
}

static void remove_value(dl_table *table, dl_table_entry *entry);

/* As entry_find(), for a change: a value that has ended is removed first. */
static dl_table_entry *
entry_find_live(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = entry_find(table, key);

    if (entry == NULL || !has_ended(table, entry)) {
        return entry;
    }
    table->end_expired++;
    remove_value(table, entry);
    return entry_find(table, key);
}

/* Finds the entry or makes it; NULL with the reason in dl_last_error(). */
static dl_table_entry *
entry_open(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = entry_find_live(table, key);

    if (entry != NULL) {
        return entry;
    }
    if (need_key(table, key.size) != DL_OK) {
        return NULL;
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

static dl_presence
entry_presence(const dl_table_entry *entry)
{
    return (dl_presence){
        .has_value = entry->value != NULL,
        .has_items = entry->waitlist != NULL && entry->waitlist->queue_size > 0,
    };
}

static bool
waitlist_is_empty(const dl_table_waitlist *waitlist)
{
    return waitlist->queue_size == 0 && dl_list_is_empty(&waitlist->plain)
           && dl_list_is_empty(&waitlist->takers)
           && dl_list_is_empty(&waitlist->barrier);
}

/* Frees the waitlist, and then the entry, if they are not needed any more. */
static void
entry_release(dl_table *table, dl_table_entry *entry)
{
    if (entry->waitlist != NULL && waitlist_is_empty(entry->waitlist)) {
        free(entry->waitlist);
        entry->waitlist = NULL;
        table->size -= sizeof *entry->waitlist;
    }
    /* Keys that were waited for in vain, and queues that were emptied, must not use
     * memory for ever: a server runs for weeks. */
    if (entry->waitlist == NULL && entry->value == NULL) {
        table->size -= entry_size(dl_map_key(&entry->node).size);
        dl_map_remove(&table->entries, &entry->node);
        free(entry);
    }
}

/* Waiting.  A waiter is linked to each of its keys and counts the missing ones.
 * A key that appears or disappears updates the counts of its own waiters and
 * touches no others.
 *
 * A wait ends in two steps: while the links of a key are traversed, waiters whose wait
 * has ended are collected in a separate list; only then are they unlinked from their
 * keys, since that removes links from the list being traversed. */

static dl_table_entry *
entry_open_waitlist(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = entry_open(table, key);

    if (entry == NULL || entry->waitlist != NULL) {
        return entry;
    }
    dl_table_waitlist *waitlist = NULL;
    if (need_room(table, sizeof *waitlist) == DL_OK) {
        waitlist = calloc(1, sizeof *waitlist);
        if (waitlist == NULL) {
            dl_fail_no_memory();
        }
    }
    if (waitlist == NULL) {
        entry_release(table, entry);
        return NULL;
    }
    table->size += sizeof *waitlist;
    dl_list_init(&waitlist->plain);
    dl_list_init(&waitlist->takers);
    dl_list_init(&waitlist->barrier);
    waitlist->entry = entry;
    entry->waitlist = waitlist;
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

/* Unlinks the waiter from all its keys.  `kept` is not released: the caller
 * still uses it. */
static void
leave(dl_table *table, dl_waiter *waiter, const dl_table_entry *kept)
{
    /* link_count only counts links that are in a list.  For a key that was named twice,
     * entry_release() does nothing before its last link is removed. */
    for (size_t i = 0; i < waiter->link_count; i++) {
        dl_wait_link *link = &waiter->links[i];
        dl_list_remove(&link->node);
        if (link->entry != kept) {
            entry_release(table, link->entry);
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

/* Returns whether a key of the waiter counts as present although its value has ended:
 * when that value is removed, the waiter has one more missing key. */
static bool
has_ended_key(const dl_table *table, const dl_waiter *waiter)
{
    for (size_t i = 0; table->end_count > 0 && i < waiter->link_count; i++) {
        const dl_table_entry *entry = waiter->links[i].entry;
        dl_presence left = {.has_items = entry_presence(entry).has_items};
        if (has_ended(table, entry) && !counts_as_there(waiter->kind, left)) {
            return true;
        }
    }
    return false;
}

static void
gather_plain(const dl_table *table, dl_list *links, dl_presence before, dl_presence now,
             dl_list *over)
{
    /* Invariant: missing_count is the number of the waiter's links whose key does not
     * count as present; it is at least 1 while the waiter is parked, unless the value
     * of one of its keys has ended and is not removed yet. */
    for (dl_list *node = links->next; node != links; node = node->next) {
        dl_waiter *waiter = waiter_of(node);
        bool was_there = counts_as_there(waiter->kind, before);
        bool is_there = counts_as_there(waiter->kind, now);
        if (was_there && !is_there) {
            waiter->missing_count++;
        } else if (!was_there && is_there && --waiter->missing_count == 0
                   && !has_ended_key(table, waiter)) {
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

/* Notifies the entry's waiters of a change; `before` is its presence before it. */
static void
entry_changed(dl_table *table, dl_table_entry *entry, dl_presence before)
{
    dl_table_waitlist *waitlist = entry->waitlist;
    dl_presence now = entry_presence(entry);
    dl_list over;

    if (waitlist == NULL) {
        return;
    }
    dl_list_init(&over);
    if (before.has_value != now.has_value || before.has_items != now.has_items) {
        gather_plain(table, &waitlist->plain, before, now, &over);
    }
    gather_barrier(&waitlist->barrier, entry->value, &over);
    finish(table, &over, entry);
}

static void
record_pop(const dl_table *table, const dl_table_entry *entry)
{
    record(table, (dl_change){
                      .kind = DL_CHANGE_POP,
                      .key = dl_map_key(&entry->node),
                      .number = entry->waitlist->queue_size,
                  });
}

/* Passes a newly pushed item to the earliest waiter for one. */
static void
entry_pushed(dl_table *table, dl_table_entry *entry)
{
    dl_waiter *taker = first_waiter(&entry->waitlist->takers);

    if (taker == NULL) {
        return;
    }
    /* Handed over at once: between a wake-up and a second request another client could
     * take the item. */
    dl_presence before = entry_presence(entry);
    taker->item = take_item(table, entry);
    record_pop(table, entry);
    finish_one(table, taker, entry);
    entry_changed(table, entry, before);
}

dl_blob *
dl_table_get(const dl_table *table, dl_bytes key)
{
    return value_of(table, entry_find(table, key));
}

bool
dl_table_check(const dl_table *table, const dl_bytes *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const dl_table_entry *entry = entry_find(table, keys[i]);
        if (entry == NULL) {
            return false;
        }
        if (value_of(table, entry) == NULL && !entry_presence(entry).has_items) {
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

static dl_bytes
name_at(const dl_list *named)
{
    return dl_map_key(&DL_LIST_ENTRY(named, dl_table_entry, named)->node);
}

/* Called after the entry got a value and had none before. */
static void
add_name(dl_table *table, dl_table_entry *entry)
{
    dl_list_append(&table->names, &entry->named);
    table->value_count++;
}

/* Called after the entry lost its value. */
static void
remove_name(dl_table *table, dl_table_entry *entry)
{
    pass_cursors(table, &entry->named);
    dl_list_remove(&entry->named);
    table->value_count--;
}

dl_status
dl_table_list(const dl_table *table, dl_status (*visit)(void *, dl_bytes),
              void *context)
{
    for (const dl_list *node = table->names.next; node != &table->names;
         node = node->next) {
        DL_TRY(visit(context, name_at(node)));
    }
    return DL_OK;
}

static void
begin_cursor(dl_table *table, dl_table_cursor *cursor, const dl_list *list,
             int64_t count)
{
    *cursor = (dl_table_cursor){.table = table, .next = list->next, .left = count};
    dl_list_append(&table->cursors, &cursor->node);
}

void
dl_table_cursor_begin(dl_table *table, dl_table_cursor *cursor)
{
    begin_cursor(table, cursor, &table->names, table->value_count);
}

void
dl_table_cursor_begin_queues(dl_table *table, dl_table_cursor *cursor)
{
    begin_cursor(table, cursor, &table->queues, table->queue_count);
}

void
dl_table_cursor_end(dl_table_cursor *cursor)
{
    dl_list_remove(&cursor->node);
}

bool
dl_table_cursor_next(dl_table_cursor *cursor, dl_bytes *name)
{
    /* Names that are set meanwhile are behind those that there were. */
    if (cursor->left <= 0 || cursor->next == &cursor->table->names) {
        return false;
    }
    *name = name_at(cursor->next);
    pass_cursor(cursor);
    return true;
}

bool
dl_table_cursor_next_item(dl_table_cursor *cursor, dl_bytes *key, dl_bytes *item,
                          int64_t *length)
{
    if (cursor->left <= 0 || cursor->next == &cursor->table->queues) {
        return false;
    }
    const dl_table_waitlist *queue =
        DL_LIST_ENTRY(cursor->next, dl_table_waitlist, queued);
    const dl_queue_item *here = cursor->item != NULL ? cursor->item : queue->last;
    *key = dl_map_key(&queue->entry->node);
    *item = dl_blob_bytes(here->blob);
    *length = queue->last->number - here->number + 1;
    cursor->item = here->previous;
    if (cursor->item == NULL) {
        pass_cursor(cursor);
    }
    return true;
}

/* Takes the value from the entry, and frees the entry if it is not needed any more: it
 * remains while it has waiters or items in its queue. */
static void
remove_value(dl_table *table, dl_table_entry *entry)
{
    dl_presence before = entry_presence(entry);

    drop_end(table, entry);
    table->size -= blob_size(entry->value);
    dl_blob_unref(entry->value);
    entry->value = NULL;
    remove_name(table, entry);
    entry_changed(table, entry, before);
    entry_release(table, entry);
}

void
dl_table_advance(dl_table *table, int64_t now)
{
    table->now = now > table->now ? now : table->now;
}

int64_t
dl_table_end_after(const dl_table *table, int64_t ttl)
{
    return table->now + (ttl < TTL_MAX ? ttl : TTL_MAX) * DL_MILLISECOND;
}

bool
dl_table_expire(dl_table *table, int64_t until, int *work)
{
    while (dl_table_next_end(table) <= until) {
        if (*work <= 0) {
            return false;
        }
        --*work;
        table->end_expired++;
        remove_value(table, table->ends[0].entry);
    }
    return true;
}

int64_t
dl_table_end_of(const dl_table *table, dl_bytes key)
{
    const dl_table_entry *entry = entry_find(table, key);

    return entry == NULL || entry->end_place == 0
               ? INT64_MAX
               : table->ends[entry->end_place - 1].at;
}

/* In place of a time: the new value has no end, or keeps the end of the value that it
 * replaces. */
#define END_NONE 0
#define END_KEPT (-1)

static void
record_end(const dl_table *table, dl_bytes key, int64_t at)
{
    if (table->changes != NULL) {
        dl_change_put_end(table->changes, key, at);
    }
}

/* Provides the memory for what changes besides the value of `entry`, which will have
 * `size` bytes and end at `end`. */
static dl_status
need_change(dl_table *table, const dl_table_entry *entry, size_t key_size, size_t size,
            int64_t end)
{
    bool has_end = end > 0 || (end == END_KEPT && entry->end_place != 0);

    if (has_end && entry->end_place == 0) {
        DL_TRY(need_end(table));
    }
    return need_record(table, has_end ? 2 * key_size + DL_CHANGE_OVERHEAD : key_size,
                       size);
}

/* Does what follows a change of the entry's value; cannot fail. */
static void
value_changed(dl_table *table, dl_table_entry *entry, int64_t end, dl_presence before)
{
    dl_bytes key = dl_map_key(&entry->node);

    record(table, (dl_change){
                      .kind = DL_CHANGE_SET,
                      .key = key,
                      .value = dl_blob_bytes(entry->value),
                  });
    if (end > 0) {
        put_end(table, entry, end);
    } else if (end == END_NONE) {
        drop_end(table, entry);
    }
    if (entry->end_place != 0) {
        record_end(table, key, table->ends[entry->end_place - 1].at);
    }
    entry_changed(table, entry, before);
    entry_release(table, entry);
}

/* Takes over the reference to `value`, also on failure.  `end` is a time, END_NONE or
 * END_KEPT. */
static dl_status
put_value(dl_table *table, dl_bytes key, dl_blob *value, int64_t end)
{
    dl_table_entry *entry = entry_open(table, key);

    if (entry == NULL) {
        dl_blob_unref(value);
        return DL_NO_MEMORY;
    }
    /* Replacing a value by one that is no larger always succeeds. */
    size_t old_size = blob_size(entry->value);
    size_t new_size = blob_size(value);
    if ((new_size > old_size && need_room(table, new_size - old_size) != DL_OK)
        || need_change(table, entry, key.size, value->size, end) != DL_OK) {
        dl_blob_unref(value);
        entry_release(table, entry);
        return DL_NO_MEMORY;
    }
    table->size += new_size - old_size;
    /* Nothing can fail from here on.  A reply that still sends the old value has a
     * reference of its own. */
    dl_presence before = entry_presence(entry);
    if (!before.has_value) {
        add_name(table, entry);
    }
    dl_blob_unref(entry->value);
    entry->value = value;
    value_changed(table, entry, end, before);
    return DL_OK;
}

dl_status
dl_table_set_blob(dl_table *table, dl_bytes key, dl_blob *value)
{
    return put_value(table, key, value, END_NONE);
}

/* Returns whether `size` bytes can be written into the memory of the value: nobody else
 * reads it, and at most half of it would stay unused. */
static bool
fits(const dl_blob *value, size_t size)
{
    return value != NULL && size <= value->capacity && size >= value->capacity / 2
           && dl_blob_is_unique(value);
}

/* A value that is replaced by one like it, such as a counter, costs no allocation. */
static dl_status
put_bytes(dl_table *table, dl_bytes key, dl_bytes value, int64_t end)
{
    dl_table_entry *entry = entry_find_live(table, key);

    if (entry != NULL && fits(entry->value, value.size)) {
        DL_TRY(need_change(table, entry, key.size, value.size, end));
        if (value.size > 0) {
            memmove(entry->value->data, value.data, value.size);
        }
        entry->value->size = value.size;
        value_changed(table, entry, end, entry_presence(entry));
        return DL_OK;
    }
    dl_blob *blob = dl_blob_copy(value);

    return blob == NULL ? dl_fail_no_memory() : put_value(table, key, blob, end);
}

dl_status
dl_table_set_until(dl_table *table, dl_bytes key, dl_bytes value, int64_t end)
{
    return put_bytes(table, key, value, end);
}

dl_status
dl_table_end_at(dl_table *table, dl_bytes key, int64_t end)
{
    dl_table_entry *entry = entry_find(table, key);

    if (entry == NULL || entry->value == NULL) {
        return DL_OK;
    }
    if (entry->end_place == 0) {
        DL_TRY(need_end(table));
    }
    put_end(table, entry, end);
    return DL_OK;
}

dl_status
dl_table_set(dl_table *table, dl_bytes key, dl_bytes value)
{
    return put_bytes(table, key, value, END_NONE);
}

dl_status
dl_table_append(dl_table *table, dl_bytes key, dl_bytes value)
{
    dl_table_entry *entry = entry_find_live(table, key);

    if (entry == NULL || entry->value == NULL) {
        return dl_table_set(table, key, value);
    }
    size_t old_size = blob_size(entry->value);
    DL_TRY(need_room(table, value.size));
    DL_TRY(need_record(table, key.size, value.size));
    DL_TRY(dl_blob_append(&entry->value, value));
    record(table, (dl_change){.kind = DL_CHANGE_APPEND, .key = key, .value = value});
    table->size += blob_size(entry->value) - old_size;
    /* The name existed before and still does, but a barrier depends on the value, which
     * appended digits change. */
    entry_changed(table, entry, entry_presence(entry));
    entry_release(table, entry);
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
    DL_TRY(put_bytes(table, key, dl_counter_format(total, text), END_KEPT));
    *sum = total;
    return DL_OK;
}

dl_status
dl_table_compare_set(dl_table *table, dl_bytes key, dl_bytes expected, dl_bytes desired,
                     dl_blob **held)
{
    return dl_table_compare_set_until(table, key, expected, desired, END_NONE, held);
}

dl_status
dl_table_compare_set_until(dl_table *table, dl_bytes key, dl_bytes expected,
                           dl_bytes desired, int64_t end, dl_blob **held)
{
    dl_blob *current = dl_table_get(table, key);
    bool is_match = current == NULL ? expected.size == 0
                                    : dl_bytes_equal(dl_blob_bytes(current), expected);

    if (is_match) {
        DL_TRY(put_bytes(table, key, desired, end));
        current = dl_table_get(table, key);
    }
    *held = current;
    return DL_OK;
}

bool
dl_table_delete(dl_table *table, dl_bytes key)
{
    dl_table_entry *entry = entry_find_live(table, key);

    if (entry == NULL || entry->value == NULL) {
        return false;
    }
    record(table, (dl_change){.kind = DL_CHANGE_DELETE, .key = key});
    remove_value(table, entry);
    return true;
}

static void
insert_item(dl_table *table, dl_table_waitlist *waitlist, dl_queue_item *item,
            bool is_first)
{
    if (waitlist->last == NULL) {
        waitlist->first = item;
        waitlist->last = item;
        dl_list_append(&table->queues, &waitlist->queued);
        table->queue_count++;
    } else if (is_first) {
        item->next = waitlist->first;
        item->number = waitlist->first->number - 1;
        waitlist->first->previous = item;
        waitlist->first = item;
    } else {
        item->previous = waitlist->last;
        item->number = waitlist->last->number + 1;
        waitlist->last->next = item;
        waitlist->last = item;
    }
    waitlist->queue_size++;
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
    } else if (need_room(table, sizeof *item + blob_size(blob)) == DL_OK
               /* A taker gets the item at once, which is a second record. */
               && need_record(table, 2 * key.size + DL_CHANGE_OVERHEAD, blob->size)
                      == DL_OK) {
        entry = entry_open_waitlist(table, key);
    }
    if (entry == NULL) {
        dl_blob_unref(blob);
        free(item);
        return DL_NO_MEMORY;
    }
    dl_presence before = entry_presence(entry);
    *item = (dl_queue_item){.blob = blob};
    table->size += item_size(item);
    insert_item(table, entry->waitlist, item, is_first);
    record(table, (dl_change){
                      .kind = is_first ? DL_CHANGE_PUT_BACK : DL_CHANGE_PUSH,
                      .key = key,
                      .number = entry->waitlist->queue_size,
                      .value = dl_blob_bytes(blob),
                  });
    /* Waits for the name's existence end, even if a taker gets the item at once. */
    entry_changed(table, entry, before);
    entry_pushed(table, entry);
    entry_release(table, entry);
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
    const dl_table_entry *entry = entry_find(table, key);

    return entry == NULL || entry->waitlist == NULL ? 0 : entry->waitlist->queue_size;
}

int64_t
dl_table_queue_pop(dl_table *table, dl_bytes key, dl_blob **item)
{
    dl_table_entry *entry = entry_find(table, key);

    if (entry == NULL || entry->waitlist == NULL || entry->waitlist->queue_size == 0) {
        return 0;
    }
    int64_t size = entry->waitlist->queue_size;
    dl_presence before = entry_presence(entry);
    /* Taking the last item may end the name's existence: then waiters for several keys
     * have one more missing key. */
    *item = take_item(table, entry);
    record_pop(table, entry);
    entry_changed(table, entry, before);
    entry_release(table, entry);
    return size;
}

/* A file that was shortened has the newest items of a queue before it has all. */
static dl_status
apply_put_back(dl_table *table, const dl_change *change)
{
    return dl_table_queue_size(table, change->key) == change->number - 1
               ? dl_table_queue_put_back(table, change->key,
                                         dl_blob_copy(change->value))
               : DL_OK;
}

static void
apply_pop(dl_table *table, const dl_change *change, dl_blob **popped)
{
    while (dl_table_queue_size(table, change->key) > 0
           && dl_table_queue_size(table, change->key) > change->number) {
        dl_blob_unref(*popped);
        (void)dl_table_queue_pop(table, change->key, popped);
    }
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
        return apply_put_back(table, change);
    case DL_CHANGE_POP:
        apply_pop(table, change, popped);
        break;
    case DL_CHANGE_REPLY:
    case DL_CHANGE_FORGET:
    case DL_CHANGE_END:
        break;
    }
    return DL_OK;
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
link_waiter(dl_table_waitlist *waitlist, dl_wait_link *link)
{
    const dl_waiter *waiter = link->waiter;

    switch (waiter->kind) {
    case DL_WAIT_KEYS:
    case DL_WAIT_VALUES:
        dl_list_append(&waitlist->plain, &link->node);
        break;
    case DL_WAIT_ITEM:
        dl_list_append(&waitlist->takers, &link->node);
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

/* Links the waiter to all keys; on failure to none. */
static dl_status
park(dl_table *table, dl_waiter *waiter, const dl_bytes *keys, size_t count)
{
    waiter->links = &waiter->one_link;
    if (count > 1) {
        DL_TRY(need_room(table, count * sizeof *waiter->links));
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
        link->entry = entry_open_waitlist(table, keys[i]);
        if (link->entry == NULL) {
            leave(table, waiter, NULL);
            return DL_NO_MEMORY;
        }
        link_waiter(link->entry->waitlist, link);
        /* Counted as soon as it is linked, so that leave() undoes exactly what was
         * done. */
        waiter->link_count++;
        table->size += count > 1 ? sizeof *link : 0;
        waiter->missing_count +=
            !counts_as_there(waiter->kind, entry_presence(link->entry));
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
    /* Parked first, so that no allocation can fail after the counter was
     * incremented. */
    DL_TRY(park(table, waiter, &key, 1));
    dl_status status = dl_table_add(table, key, 1, &arrived);
    if (status != DL_OK) {
        leave(table, waiter, NULL);
        return status;
    }
    /* If the increment ended this wait, the caller is told here and not by the list. */
    dl_list_remove(&waiter->ready_node);
    return DL_OK;
}

dl_status
dl_table_barrier_again(dl_table *table, dl_waiter *waiter, dl_bytes key,
                       int64_t world_size)
{
    const dl_blob *value = dl_table_get(table, key);
    int64_t arrived;

    *waiter = (dl_waiter){.kind = DL_WAIT_BARRIER, .world_size = world_size};
    if (value != NULL && dl_counter_parse(dl_blob_bytes(value), &arrived)
        && arrived >= world_size) {
        return DL_OK;
    }
    return park(table, waiter, &key, 1);
}
