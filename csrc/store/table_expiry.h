/* SPDX-License-Identifier: BSD-3-Clause
 *
 * When the values of a table end: a heap of their ends.  Removes nothing, since that
 * concerns waiters, too. */
#ifndef DISTLITE_STORE_TABLE_EXPIRY_H
#define DISTLITE_STORE_TABLE_EXPIRY_H

#include "store/table_entry.h"

/* Provides the memory for one more end, so that dl_expiry_put() does not fail. */
dl_status dl_expiry_need(dl_table *table);

/* Sets when the entry's value ends. */
void dl_expiry_put(dl_table *table, dl_table_entry *entry, int64_t at);

/* Forgets when the value ends, if it does. */
void dl_expiry_drop(dl_table *table, dl_table_entry *entry);

/* Returns whether the value has ended and was not removed yet. */
static inline bool
dl_entry_has_ended(const dl_table *table, const dl_table_entry *entry)
{
    return entry->end_place != 0 && table->ends[entry->end_place - 1].at <= table->now;
}

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

/* Returns when the value of `key` ends; INT64_MAX if it does not, or is absent. */
int64_t dl_table_end_of(const dl_table *table, dl_bytes key);

#endif
