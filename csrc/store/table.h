/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The contents of a store: values, counters and queues, and who waits for which key.
 * Pure memory: no I/O, no threads, no locks, no clock.  The owner (the TCP server's
 * thread, the HashStore's mutex) provides exclusion and ends waits that take too long.
 *
 * A waiter is linked to one key at a time, the first one that it lacks, however many it
 * waits for: the cost of a change is proportional to the waiters of that key.  Once that
 * key exists the waiter has seen it, even if it is deleted, and moves to a ready list,
 * which the owner drains after each changing call: the table never calls out.
 *
 * A name may have a value and a queue at once.  It exists while it has a value or an
 * item in its queue; num_keys, listing and delete only concern values. */
#ifndef DISTLITE_STORE_TABLE_H
#define DISTLITE_STORE_TABLE_H

#include "store/table_entry.h"
#include "store/table_waiters.h"

void dl_table_init(dl_table *table);

/* Frees the contents; no waiter may be parked. */
void dl_table_fini(dl_table *table);

/* Returns the value of `key`, or NULL.  Borrowed until the next change: take a
 * reference to keep it. */
dl_blob *dl_table_get(const dl_table *table, dl_bytes key);

/* Returns whether the key exists: with a value or a queue. */
bool dl_table_has(const dl_table *table, dl_bytes key);

/* Returns the number of keys with values. */
int64_t dl_table_num_keys(const dl_table *table);

/* The following functions may make waiters ready.  After DL_NO_MEMORY nothing has
 * changed; a table that has reached its limits fails with it, too, with a text that
 * says so. */

dl_status dl_table_set(dl_table *table, dl_bytes key, dl_bytes value);

/* Takes over the caller's reference to `value`, also on failure. */
dl_status dl_table_set_blob(dl_table *table, dl_bytes key, dl_blob *value);

dl_status dl_table_append(dl_table *table, dl_bytes key, dl_bytes value);

/* Adds to a counter, which is decimal text, parsed as strtoll(3) does in base 10; wraps
 * at int64.  DL_INVALID, with the key in the text, if the value is not a number; it is
 * left unchanged. */
dl_status dl_table_add(dl_table *table, dl_bytes key, int64_t delta, int64_t *sum);

/* Stores `desired` if the value equals `expected`, or if there is none and `expected`
 * is empty.  `*held` is the value of the key afterwards, borrowed until the next
 * change; NULL if it has none (torch's clients then get `expected` as the reply). */
dl_status dl_table_compare_set(dl_table *table, dl_bytes key, dl_bytes expected,
                               dl_bytes desired, dl_blob **held);

/* Deletes the value and returns whether there was one.  Waiters that have seen the key
 * do not wait for it again. */
bool dl_table_delete(dl_table *table, dl_bytes key);

dl_status dl_table_queue_push(dl_table *table, dl_bytes key, dl_bytes value);

/* Puts a popped item back as the oldest one: for an owner whose caller can no longer
 * take it.  Takes over the caller's reference to `item`, also on failure. */
dl_status dl_table_queue_put_back(dl_table *table, dl_bytes key, dl_blob *item);

/* Pops the oldest item and returns the length before the pop; unless that is 0, the
 * caller owns the reference in `*item`. */
int64_t dl_table_queue_pop(dl_table *table, dl_bytes key, dl_blob **item);

/* Applies a recorded change; ignores those that are not of the table.  Fails as the
 * function that made the change.  A popped item replaces the reference in `*popped`,
 * which the caller owns. */
dl_status dl_table_apply(dl_table *table, const dl_change *change, dl_blob **popped);

int64_t dl_table_queue_size(const dl_table *table, dl_bytes key);

/* Parks `waiter` until it has seen each of the keys, unless all exist already: then
 * `is_parked` is false, and it does not appear in the ready list.  `keys` must outlive the
 * wait; duplicates are harmless; a wait for no keys is over at once.  Not for
 * DL_WAIT_BARRIER. */
dl_status dl_table_wait(dl_table *table, dl_waiter *waiter, dl_wait_kind kind,
                        const dl_bytes *keys, size_t count);

/* Increments the counter `key`, an ordinary value, unless the member `is_counted` already,
 * and parks `waiter` until the counter is at least `world_size`, whoever changes it.
 * Cancelling the wait does not decrement it.  Fails as dl_table_add() does. */
dl_status dl_table_barrier(dl_table *table, dl_waiter *waiter, dl_bytes key,
                           int64_t world_size, bool is_counted);

#endif
