/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the table keeps under one name; shared by table.c (values), table_queue.c and
 * table_wait.c, private to them.  Most entries are a value and nothing else, so all that
 * has to do with meeting somebody lives in a lobby that comes and goes. */
#ifndef DISTLITE_STORE_TABLE_ENTRY_H
#define DISTLITE_STORE_TABLE_ENTRY_H

#include "store/table.h"

typedef struct dl_queue_item {
    struct dl_queue_item *next;
    dl_blob *blob;
} dl_queue_item;

/* The links of those who wait, earliest first; the barrier's by world size. */
typedef struct dl_table_lobby {
    dl_list plain; /* DL_WAIT_KEYS and DL_WAIT_VALUES */
    dl_list turns;
    dl_list takers; /* DL_WAIT_ITEM: only while the queue is empty */
    dl_list barrier;
    dl_queue_item *first;
    dl_queue_item *last;
    int64_t queue_size;
} dl_table_lobby;

typedef struct dl_table_entry {
    dl_map_entry node;
    dl_blob *value;        /* NULL: none */
    dl_table_lobby *lobby; /* NULL: nobody waits, the queue is empty */
    uint8_t key[];
} dl_table_entry;

/* In which of the two ways a name exists. */
typedef struct dl_presence {
    bool has_value;
    bool has_items;
} dl_presence;

/* NULL when there is none. */
dl_table_entry *dl_table_entry_find(const dl_table *table, dl_bytes key);

/* Finds or makes; NULL when out of memory.  Release it when it may be idle. */
dl_table_entry *dl_table_entry_open(dl_table *table, dl_bytes key);

/* The same, with a lobby. */
dl_table_entry *dl_table_entry_open_lobby(dl_table *table, dl_bytes key);

/* Frees the lobby, and the entry, if there is no more reason for it. */
void dl_table_entry_release(dl_table *table, dl_table_entry *entry);

dl_presence dl_table_entry_presence(const dl_table_entry *entry);

/* Oldest item; the queue must not be empty.  The reference is the caller's. */
dl_blob *dl_table_entry_take_item(dl_table_entry *entry);

/* Tells those who wait for the entry that it changed, having been `before`. */
void dl_table_entry_changed(dl_table *table, dl_table_entry *entry, dl_presence before);

/* Gives a newly pushed item to who waits for one. */
void dl_table_entry_pushed(dl_table *table, dl_table_entry *entry);

/* Ends the earliest DL_WAIT_TURN, if any. */
void dl_table_entry_turn(dl_table *table, dl_table_entry *entry);

#endif
