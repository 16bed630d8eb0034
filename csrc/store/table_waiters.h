/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who waits for the names of a table.  Changes nothing that a name has: whoever does calls
 * dl_entry_changed(). */
#ifndef DISTLITE_STORE_TABLE_WAITERS_H
#define DISTLITE_STORE_TABLE_WAITERS_H

#include "store/table_entry.h"

/* Makes the entry's waiters ready that have what they need of it now. */
void dl_entry_changed(dl_table *table, const dl_table_entry *entry);

/* Links the waiter to the entry of `key`. */
dl_status dl_waiter_link(dl_table *table, dl_waiter *waiter, dl_bytes key);

/* Links the waiter to the first of its keys that it has not seen and that it lacks;
 * leaves it unlinked if there is none. */
dl_status dl_waiter_advance(dl_table *table, dl_waiter *waiter);

/* Returns the next waiter whose wait is over, in the order in which they ended, each
 * once; NULL when there are no more.  Those that lack another key are linked to that
 * one; `status` tells, and dl_last_error() why, if that has failed. */
dl_waiter *dl_table_take_ready(dl_table *table);

/* Ends a wait early: unlinks the waiter from its key or the ready list.  Harmless if it
 * is not waiting. */
void dl_table_cancel(dl_table *table, dl_waiter *waiter);

#endif
