/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who waits for the names of a table.  A waiter is linked to each of its keys and counts
 * the missing ones.  Changes nothing that a name has: whoever does says what it was. */
#ifndef DISTLITE_STORE_TABLE_WAITERS_H
#define DISTLITE_STORE_TABLE_WAITERS_H

#include "store/table_entry.h"

/* Notifies the entry's waiters of a change; `before` is its presence before it. */
void dl_entry_changed(dl_table *table, dl_table_entry *entry, dl_presence before);

/* Unlinks the waiter from all its keys.  `kept` is not released: the caller
 * still uses it. */
void dl_waiter_leave(dl_table *table, dl_waiter *waiter, const dl_table_entry *kept);

/* Returns whether a wait of this kind has what it needs of a name. */
bool dl_wait_is_met(dl_wait_kind kind, dl_presence presence);

/* Links the waiter to all keys; on failure to none. */
dl_status dl_waiter_park(dl_table *table, dl_waiter *waiter, const dl_bytes *keys,
                         size_t count);

/* Returns the next waiter whose wait has ended, in the order in which they ended, each
 * once; NULL when there are no more. */
dl_waiter *dl_table_take_ready(dl_table *table);

/* Ends a wait early: unlinks the waiter from its keys and the ready list.  Harmless if
 * it is not waiting. */
void dl_table_cancel(dl_table *table, dl_waiter *waiter);

#endif
