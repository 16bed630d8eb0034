/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a store remembers: values, counters, queues, and who waits for which key.  Pure
 * memory: no I/O, no threads, no locks, no clock.  The owner (the TCP server's thread,
 * the HashStore's mutex) provides exclusion and ends waits that take too long.
 *
 * Waiters hang off the keys they wait for and count the keys still missing, so a change
 * costs a step per waiter of that key.  A waiter whose wait is over moves to a ready
 * list, which the owner drains after each changing call: the table never calls out.
 *
 * A name may hold a value and a queue at once.  It exists while it has a value or an
 * item in its queue; num_keys, listing and delete are about values only. */
#ifndef DISTLITE_STORE_TABLE_H
#define DISTLITE_STORE_TABLE_H

#include "base/blob.h"
#include "base/bytes.h"
#include "base/list.h"
#include "base/map.h"
#include "base/status.h"

typedef struct dl_table {
    dl_map entries;
    dl_list ready;
    dl_list names;   /* of entries with values, in the order in which they got them */
    dl_list cursors; /* that are somewhere in `names` */
    uint64_t names_version; /* grows when a name gets a value or loses it */
    size_t names_size;      /* bytes of them all */
    int64_t value_count;
    size_t size;        /* bytes of all that the table holds, about */
    uint64_t key_limit; /* of names that exist or are waited for; 0: none */
    uint64_t size_limit;
} dl_table;

typedef enum dl_wait_kind {
    DL_WAIT_KEYS,   /* until all keys exist */
    DL_WAIT_VALUES, /* until all keys have values: queues do not count */
    /* One key, as DL_WAIT_KEYS, but a push ends only the earliest of these: for clients
     * that wait first and pop in a second request. */
    DL_WAIT_TURN,
    DL_WAIT_ITEM,    /* one key: until a push; gets that item itself, before any TURN */
    DL_WAIT_BARRIER, /* see dl_table_barrier() */
} dl_wait_kind;

struct dl_waiter;

/* A waiter's place in the list of one key. */
typedef struct dl_wait_link {
    dl_list node;
    struct dl_waiter *waiter;
    struct dl_table_entry *entry;
} dl_wait_link;

/* Embedded in whoever waits (a session, a thread's frame).  Zeroed: waits for nothing.
 * May be used again once it is neither parked nor in the ready list. */
typedef struct dl_waiter {
    dl_wait_kind kind;
    bool is_parked; /* hangs off its keys; cleared when it becomes ready */
    dl_list ready_node;
    dl_blob *item; /* ITEM: once over, the caller's reference */
    int64_t world_size;
    size_t missing_count;
    size_t link_count;
    dl_wait_link *links; /* &one_link, or on the heap for several keys */
    dl_wait_link one_link;
} dl_waiter;

void dl_table_init(dl_table *table);

/* Nobody may be waiting any more. */
void dl_table_fini(dl_table *table);

/* Ended waits in the order in which they ended, each once; NULL when there are no more. */
dl_waiter *dl_table_take_ready(dl_table *table);

/* Borrowed until the next change; reference it to keep it.  NULL when absent. */
dl_blob *dl_table_get(const dl_table *table, dl_bytes key);

bool dl_table_check(const dl_table *table, const dl_bytes *keys, size_t count);
int64_t dl_table_num_keys(const dl_table *table);

/* The names that have values, those first that had them first, dl_table_num_keys() of
 * them.  `visit` must not
 * change the table; its first failure ends the listing and is returned. */
dl_status dl_table_list(const dl_table *table,
                        dl_status (*visit)(void *context, dl_bytes key), void *context);

/* Goes through the names while the table changes: each that has a value all the while
 * comes once, one that gets or loses it meanwhile may come or not.  New ones come after
 * all that were there.  Zeroed: not begun. */
typedef struct dl_table_cursor {
    dl_list node; /* in the table's list */
    const dl_table *table;
    const dl_list *next;
} dl_table_cursor;

void dl_table_cursor_begin(dl_table *table, dl_table_cursor *cursor);
void dl_table_cursor_end(dl_table_cursor *cursor);

/* `*name` is borrowed until the next change.  False: there are no more. */
bool dl_table_cursor_next(dl_table_cursor *cursor, dl_bytes *name);

/* Bytes of all names that have values. */
static inline size_t
dl_table_names_size(const dl_table *table)
{
    return table->names_size;
}

/* The following may make waiters ready.  DL_NO_MEMORY changes nothing; it is also the
 * answer of a table that is full, and its text says so. */

dl_status dl_table_set(dl_table *table, dl_bytes key, dl_bytes value);

/* Takes the caller's reference to `value`, also on failure. */
dl_status dl_table_set_blob(dl_table *table, dl_bytes key, dl_blob *value);

dl_status dl_table_append(dl_table *table, dl_bytes key, dl_bytes value);

/* Decimal text, read as strtoll does in base 10; wraps at int64.  A value that is no
 * number is DL_INVALID, with a text naming both, and stays. */
dl_status dl_table_add(dl_table *table, dl_bytes key, int64_t delta, int64_t *sum);

/* Stores `desired` when the value equals `expected`, or when there is none and `expected`
 * is empty.  `*held`: what the key holds then, borrowed until the next change; NULL when
 * it holds nothing (torch's clients are then answered with `expected`). */
dl_status dl_table_compare_set(dl_table *table, dl_bytes key, dl_bytes expected,
                               dl_bytes desired, dl_blob **held);

/* Whether there was a value.  Those who wait for the key wait for it again. */
bool dl_table_delete(dl_table *table, dl_bytes key);

dl_status dl_table_queue_push(dl_table *table, dl_bytes key, dl_bytes value);

/* The length before the pop; if not 0, `*item` is the caller's reference. */
int64_t dl_table_queue_pop(dl_table *table, dl_bytes key, dl_blob **item);

int64_t dl_table_queue_size(const dl_table *table, dl_bytes key);

/* Lets the next DL_WAIT_TURN have its turn if the queue is not empty: for an owner who
 * sees that the waiter a push ended went away, or went on to something else, instead of
 * popping. */
void dl_table_queue_pass_on(dl_table *table, dl_bytes key);

/* Parks `waiter`, unless what it waits for is there already: then DL_OK with
 * `is_parked` false (and `item` set), and it does not come up as ready.  The keys need
 * not outlive the call; doubles are harmless; no keys are always there.  Not for
 * DL_WAIT_BARRIER. */
dl_status dl_table_wait(dl_table *table, dl_waiter *waiter, dl_wait_kind kind,
                        const dl_bytes *keys, size_t count);

/* Adds one to the counter `key`, an ordinary value, and parks `waiter` until the
 * counter is at least `world_size`, whoever changes it.  Cancelling does not take the
 * one back.  Fails as dl_table_add() does. */
dl_status dl_table_barrier(dl_table *table, dl_waiter *waiter, dl_bytes key,
                           int64_t world_size);

/* Ends a wait early: leaves the keys and the ready list.  Harmless when not waiting. */
void dl_table_cancel(dl_table *table, dl_waiter *waiter);

#endif
