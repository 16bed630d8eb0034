/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The types of a table (table.h). */
#ifndef DISTLITE_STORE_TABLE_STATE_H
#define DISTLITE_STORE_TABLE_STATE_H

#include "base/blob.h"
#include "base/bytes.h"
#include "base/list.h"
#include "base/map.h"
#include "base/status.h"
#include "store/journal_format.h"

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
    dl_buffer *changes;  /* gets a record of each change; NULL: they are not recorded */
    uint64_t key_limit;  /* of names that exist or are waited for; 0: no limit */
    uint64_t size_limit; /* of `size`; 0: no limit */
    uint64_t key_refusals;  /* number of changes that exceeded the limit of keys */
    uint64_t size_refusals; /* and the limit of bytes */
} dl_table;

typedef enum dl_wait_kind {
    DL_WAIT_KEYS,    /* until all keys exist */
    DL_WAIT_VALUES,  /* until all keys have values: queues do not count */
    DL_WAIT_ITEMS,   /* until all keys have items: values do not count */
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
    int64_t world_size;
    size_t missing_count;
    size_t link_count;
    dl_wait_link *links; /* &one_link, or on the heap for several keys */
    dl_wait_link one_link;
} dl_waiter;

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

#endif
