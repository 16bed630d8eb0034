/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The types of a table (table.h), and its entries: a name with its value, and on demand a
 * waitlist with its queue and with the waiters for it.  Counts their sizes against the
 * table's limits. */
#ifndef DISTLITE_STORE_TABLE_ENTRY_H
#define DISTLITE_STORE_TABLE_ENTRY_H

#include "base/blob.h"
#include "base/bytes.h"
#include "base/list.h"
#include "base/map.h"
#include "base/status.h"
#include "store/journal_format.h"

typedef struct dl_table {
    dl_map entries;
    dl_list ready;
    dl_list names; /* of entries with values, in the order in which they got them */
    int64_t value_count;
    size_t size;         /* bytes that the table holds, approximately */
    size_t waiter_count; /* of parked waiters */
    dl_buffer *changes;  /* gets a record of each change; NULL: they are not recorded */
    uint64_t key_limit;  /* of names that exist or are waited for; 0: no limit */
    uint64_t size_limit; /* of `size`; 0: no limit */
    uint64_t key_refusals;  /* number of changes that exceeded the limit of keys */
    uint64_t size_refusals; /* and the limit of bytes */
} dl_table;

typedef enum dl_wait_kind {
    DL_WAIT_KEYS,    /* until all keys were seen to exist */
    DL_WAIT_VALUES,  /* until all had values: queues do not count */
    DL_WAIT_ITEMS,   /* until all had items: values do not count */
    DL_WAIT_BARRIER, /* see dl_table_barrier() */
} dl_wait_kind;

/* Embedded in a session or in the frame of a waiting thread.  Zeroed memory is an idle
 * waiter.  May be used again once it is neither parked nor in the ready list. */
typedef struct dl_waiter {
    dl_wait_kind kind;
    bool is_parked;               /* its wait is not over */
    dl_list node;                 /* in the list of `entry`, or in the ready list */
    struct dl_table_entry *entry; /* what it is linked to; NULL: ready or idle */
    const dl_bytes *keys;         /* the owner's; none for a barrier */
    size_t count;
    size_t next;        /* the number of keys that it has seen, from the first on */
    int64_t world_size; /* of a barrier */
    dl_status status;   /* of a wait that is over: DL_OK, or why it ended early */
} dl_waiter;

typedef struct dl_queue_item {
    dl_list node;
    dl_blob *blob;
} dl_queue_item;

/* Most entries are just a value: what is needed for waiting and for queues is in a
 * waitlist, which is allocated on demand.  Its lists hold waiters, earliest first;
 * those of a barrier are sorted by world size. */
typedef struct dl_table_waitlist {
    dl_list plain; /* all kinds of waiters but those of a barrier */
    dl_list barrier;
    dl_list items; /* of the queue, the oldest first */
    int64_t queue_size;
} dl_table_waitlist;

typedef struct dl_table_entry {
    dl_map_entry node;
    dl_list named;  /* in the table's list of names, while there is a value */
    dl_blob *value; /* NULL: none */
    dl_table_waitlist *waitlist; /* NULL: no waiters, and the queue is empty */
    uint8_t key[];
} dl_table_entry;

static inline size_t
dl_table_blob_size(const dl_blob *blob)
{
    return blob == NULL ? 0 : sizeof *blob + blob->capacity;
}

static inline size_t
dl_queue_item_size(const dl_queue_item *item)
{
    return sizeof *item + dl_table_blob_size(item->blob);
}

static inline bool
dl_entry_has_items(const dl_table_entry *entry)
{
    return entry->waitlist != NULL && entry->waitlist->queue_size > 0;
}

/* The two ways in which a name can exist. */
static inline bool
dl_entry_exists(const dl_table_entry *entry)
{
    return entry->value != NULL || dl_entry_has_items(entry);
}

/* Checks whether `size` more bytes fit the limit. */
dl_status dl_table_need_room(dl_table *table, size_t size);

dl_table_entry *dl_entry_find(const dl_table *table, dl_bytes key);

/* Finds the entry or makes it; NULL with the reason in dl_last_error(). */
dl_table_entry *dl_entry_open(dl_table *table, dl_bytes key);

/* Frees the waitlist, and then the entry, if they are not needed any more. */
void dl_entry_release(dl_table *table, dl_table_entry *entry);

/* Finds the entry with a waitlist, or makes them; NULL with the reason in
 * dl_last_error(). */
dl_table_entry *dl_entry_open_waitlist(dl_table *table, dl_bytes key);

/* Removes the oldest item; the queue must not be empty.  The caller owns the
 * reference. */
dl_blob *dl_entry_take_item(dl_table *table, dl_table_entry *entry);

/* Called after the entry got a value and had none before. */
void dl_entry_add_name(dl_table *table, dl_table_entry *entry);

/* Called after the entry lost its value. */
void dl_entry_remove_name(dl_table *table, dl_table_entry *entry);

/* Calls `visit` for each name with a value, in the order in which they got their
 * values; there are dl_table_num_keys() of them.  `visit` must not change the table;
 * its first failure ends the listing and is returned. */
dl_status dl_table_list(const dl_table *table,
                        dl_status (*visit)(void *context, dl_bytes key), void *context);

/* Appends these names in the format of dl_put_bytes(). */
dl_status dl_table_put_names(const dl_table *table, dl_buffer *out);

/* Calls `visit` for each item of a queue, of each queue the oldest first. */
dl_status dl_table_list_items(const dl_table *table,
                              dl_status (*visit)(void *context, dl_bytes key,
                                                 dl_bytes item),
                              void *context);

#endif
