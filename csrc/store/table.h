/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The contents of a store: values, counters and queues, and who waits for which key.
 * Pure memory: no I/O, no threads, no locks, no clock.  The owner (the TCP server's
 * thread, the HashStore's mutex) provides exclusion and ends waits that take too long.
 *
 * Waiters are linked to the keys that they wait for and count the keys still missing,
 * so the cost of a change is proportional to the waiters of that key.  A waiter whose
 * wait has ended moves to a ready list, which the owner drains after each changing
 * call: the table never calls out.
 *
 * A value may have an end, a point in time of the owner's clock, which the owner tells
 * by dl_table_advance().  From its end on a value counts as absent in all functions
 * that look at its key; the owner removes such values by dl_table_expire(), a few at a
 * time, and before it counts or lists all names.
 *
 * A name may have a value and a queue at once.  It exists while it has a value or an
 * item in its queue; num_keys, listing and delete only concern values. */
#ifndef DISTLITE_STORE_TABLE_H
#define DISTLITE_STORE_TABLE_H

#include "base/blob.h"
#include "base/bytes.h"
#include "base/list.h"
#include "base/map.h"
#include "base/status.h"
#include "store/journal_format.h"

/* When the value of an entry ends: an element of a heap, whose first one is the
 * earliest. */
typedef struct dl_table_end {
    int64_t at;
    struct dl_table_entry *entry;
} dl_table_end;

typedef struct dl_table {
    dl_map entries;
    dl_list ready;
    dl_list names;  /* of entries with values, in the order in which they got them */
    dl_list queues; /* waitlists that have items, in the order in which they got them */
    dl_list cursors; /* positions in `names` or `queues` */
    int64_t value_count;
    int64_t queue_count; /* of `queues` */
    size_t size;         /* bytes that the table holds, approximately */
    size_t waiter_count; /* of parked waiters */
    dl_table_end *ends;  /* of the values that have one */
    size_t end_count;
    size_t end_capacity;
    int64_t now;          /* as told by the last dl_table_advance() */
    uint64_t end_expired; /* number of values that were removed at their ends */
    dl_buffer *changes;  /* gets a record of each change; NULL: they are not recorded */
    uint64_t key_limit;  /* of names that exist or are waited for; 0: no limit */
    uint64_t size_limit; /* of `size`; 0: no limit */
    uint64_t key_refusals;  /* number of changes that exceeded the limit of keys */
    uint64_t size_refusals; /* and the limit of bytes */
} dl_table;

typedef enum dl_wait_kind {
    DL_WAIT_KEYS,    /* until all keys exist */
    DL_WAIT_VALUES,  /* until all keys have values: queues do not count */
    DL_WAIT_ITEM,    /* one key, until a push; gets the item itself */
    DL_WAIT_BARRIER, /* see dl_table_barrier() */
} dl_wait_kind;

struct dl_waiter;

/* The entry of a waiter in the list of one key. */
typedef struct dl_wait_link {
    dl_list node;
    struct dl_waiter *waiter;
    struct dl_table_entry *entry;
} dl_wait_link;

/* Embedded in a session or in the frame of a waiting thread.  Zeroed memory is an idle
 * waiter.  May be used again once it is neither parked nor in the ready list. */
typedef struct dl_waiter {
    dl_wait_kind kind;
    bool is_parked; /* linked to its keys; cleared when it becomes ready */
    dl_list ready_node;
    dl_blob *item; /* ITEM: after the wait, a reference that the caller owns */
    int64_t world_size;
    size_t missing_count;
    size_t link_count;
    dl_wait_link *links; /* &one_link, or on the heap for several keys */
    dl_wait_link one_link;
} dl_waiter;

void dl_table_init(dl_table *table);

/* Frees the contents; no waiter may be parked. */
void dl_table_fini(dl_table *table);

/* Returns the next waiter whose wait has ended, in the order in which they ended, each
 * once; NULL when there are no more. */
dl_waiter *dl_table_take_ready(dl_table *table);

/* Tells the table the time; an earlier one than the last is ignored. */
void dl_table_advance(dl_table *table, int64_t now);

/* Returns the end of a value that is set now with a time to live of `ttl`
 * milliseconds. */
int64_t dl_table_end_after(const dl_table *table, int64_t ttl);

/* Returns when the first value ends; INT64_MAX if none does. */
static inline int64_t
dl_table_next_end(const dl_table *table)
{
    return table->end_count == 0 ? INT64_MAX : table->ends[0].at;
}

/* Removes values that have ended by `until`, the earliest first, and decrements `*work`
 * for each.  Returns false when `*work` is used up and there are more.  A removal is
 * not recorded, since the record of the value includes its end. */
bool dl_table_expire(dl_table *table, int64_t until, int *work);

/* Returns when the value of `key` ends; INT64_MAX if it does not, or is absent. */
int64_t dl_table_end_of(const dl_table *table, dl_bytes key);

/* Returns the value of `key`, or NULL.  Borrowed until the next change: take a
 * reference to keep it. */
dl_blob *dl_table_get(const dl_table *table, dl_bytes key);

/* Returns whether all keys exist. */
bool dl_table_check(const dl_table *table, const dl_bytes *keys, size_t count);

/* Returns the number of keys with values. */
int64_t dl_table_num_keys(const dl_table *table);

/* Calls `visit` for each name with a value, in the order in which they got their
 * values; there are dl_table_num_keys() of them.  `visit` must not change the table;
 * its first failure ends the listing and is returned. */
dl_status dl_table_list(const dl_table *table,
                        dl_status (*visit)(void *context, dl_bytes key), void *context);

/* An iterator over the names, or the items of queues, that there were when it was begun;
 * it stays valid while the table changes.  A name that has a value all the time is
 * returned once; one that gets or loses it meanwhile may be returned or not.  Zeroed
 * memory: not begun. */
typedef struct dl_table_cursor {
    dl_list node; /* in the table's list */
    const dl_table *table;
    const dl_list *next;              /* a name or a queue */
    const struct dl_queue_item *item; /* the next one of the queue; NULL: the newest */
    int64_t left;                     /* names or queues to be visited, at most */
} dl_table_cursor;

void dl_table_cursor_begin(dl_table *table, dl_table_cursor *cursor);
void dl_table_cursor_begin_queues(dl_table *table, dl_table_cursor *cursor);
void dl_table_cursor_end(dl_table_cursor *cursor);

/* Moves on to the next name, which is borrowed until the next change; returns false if
 * there are no more. */
bool dl_table_cursor_next(dl_table_cursor *cursor, dl_bytes *name);

/* Moves on to the next item, of each queue the newest first, with `*length` items from
 * this one to the newest; otherwise as dl_table_cursor_next(). */
bool dl_table_cursor_next_item(dl_table_cursor *cursor, dl_bytes *key, dl_bytes *item,
                               int64_t *length);

/* The following functions may make waiters ready.  After DL_NO_MEMORY nothing has
 * changed; a table that has reached its limits fails with it, too, with a text that
 * says so. */

dl_status dl_table_set(dl_table *table, dl_bytes key, dl_bytes value);

/* Takes over the caller's reference to `value`, also on failure. */
dl_status dl_table_set_blob(dl_table *table, dl_bytes key, dl_blob *value);

/* As dl_table_set(), for a value that ends at `end`, which is positive. */
dl_status dl_table_set_until(dl_table *table, dl_bytes key, dl_bytes value,
                             int64_t end);

/* Sets when the value of `key` ends; does nothing if it has none. */
dl_status dl_table_end_at(dl_table *table, dl_bytes key, int64_t end);

/* Keeps the end of the value. */
dl_status dl_table_append(dl_table *table, dl_bytes key, dl_bytes value);

/* Adds to a counter, which is decimal text, parsed as strtoll(3) does in base 10; wraps
 * at int64; keeps the end of the value.  DL_INVALID, with key and value in the text, if
 * the value is not a number; it is left unchanged. */
dl_status dl_table_add(dl_table *table, dl_bytes key, int64_t delta, int64_t *sum);

/* Stores `desired` if the value equals `expected`, or if there is none and `expected`
 * is empty.  `*held` is the value of the key afterwards, borrowed until the next
 * change; NULL if it has none (torch's clients then get `expected` as the reply). */
dl_status dl_table_compare_set(dl_table *table, dl_bytes key, dl_bytes expected,
                               dl_bytes desired, dl_blob **held);

/* The same for a value that ends at `end`; 0: it has no end. */
dl_status dl_table_compare_set_until(dl_table *table, dl_bytes key, dl_bytes expected,
                                     dl_bytes desired, int64_t end, dl_blob **held);

/* Deletes the value and returns whether there was one.  Waiters that wait for the key
 * wait for it again. */
bool dl_table_delete(dl_table *table, dl_bytes key);

dl_status dl_table_queue_push(dl_table *table, dl_bytes key, dl_bytes value);

/* Puts a popped item back as the oldest one: for an owner whose caller can no longer
 * take it.  Takes over the caller's reference to `item`, also on failure. */
dl_status dl_table_queue_put_back(dl_table *table, dl_bytes key, dl_blob *item);

/* Pops the oldest item and returns the length before the pop; unless that is 0, the
 * caller owns the reference in `*item`. */
int64_t dl_table_queue_pop(dl_table *table, dl_bytes key, dl_blob **item);

/* Applies a recorded change.  Ignores the end of a value, whose clock only the owner
 * knows, and changes that are not of the table.  Fails as the function that made the
 * change.  A popped item replaces the reference in `*popped`, which the caller owns. */
dl_status dl_table_apply(dl_table *table, const dl_change *change, dl_blob **popped);

int64_t dl_table_queue_size(const dl_table *table, dl_bytes key);

/* Parks `waiter`, unless its wait is over already: then `is_parked` is false (and
 * `item` is set for DL_WAIT_ITEM), and it does not appear in the ready list.  The keys
 * need not outlive the call; duplicates are harmless; a wait for no keys is over at
 * once.  Not for DL_WAIT_BARRIER. */
dl_status dl_table_wait(dl_table *table, dl_waiter *waiter, dl_wait_kind kind,
                        const dl_bytes *keys, size_t count);

/* Increments the counter `key`, an ordinary value, and parks `waiter` until the counter
 * is at least `world_size`, whoever changes it.  Cancelling the wait does not decrement
 * it.  Fails as dl_table_add() does. */
dl_status dl_table_barrier(dl_table *table, dl_waiter *waiter, dl_bytes key,
                           int64_t world_size);

/* Parks `waiter` until that counter is at least `world_size`, as the call above does
 * for a member that it has counted already. */
dl_status dl_table_barrier_again(dl_table *table, dl_waiter *waiter, dl_bytes key,
                                 int64_t world_size);

/* Ends a wait early: unlinks the waiter from its keys and the ready list.  Harmless if
 * it is not waiting. */
void dl_table_cancel(dl_table *table, dl_waiter *waiter);

#endif
