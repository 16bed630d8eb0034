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

#endif
