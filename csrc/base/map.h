/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Byte-string keys to structures of the caller, which embed a dl_map_entry and keep the
 * key's bytes: the map allocates nothing but its buckets, and inserting cannot fail (if
 * there is no memory for more buckets, chains grow longer).  The hash has a random seed
 * per process, so that keys from the network cannot be chosen to collide.  Zeroed
 * memory is an empty map.  No locks. */
#ifndef DISTLITE_BASE_MAP_H
#define DISTLITE_BASE_MAP_H

#include "base/bytes.h"

/* In no map while zeroed. */
typedef struct dl_map_entry {
    struct dl_map_entry *next; /* in the same bucket */
    const uint8_t *key;        /* the caller's memory */
    uint32_t key_size;
    uint32_t hash;
} dl_map_entry;

typedef struct dl_map {
    dl_map_entry **buckets; /* NULL: only `single` */
    dl_map_entry *single;   /* the one bucket of a map that never grew */
    size_t mask;            /* buckets less one; their number is a power of two */
    size_t count;
} dl_map;

#define DL_MAP_ENTRY(entry, type, member) \
    ((type *)(void *)((char *)(entry) - offsetof(type, member)))

/* Frees the buckets; the entries are the caller's. */
void dl_map_fini(dl_map *map);

/* NULL when absent. */
dl_map_entry *dl_map_find(const dl_map *map, dl_bytes key);

/* `key` must be absent, at most UINT32_MAX bytes, and outlive the entry. */
void dl_map_insert(dl_map *map, dl_map_entry *entry, dl_bytes key);

/* `entry` must be in the map. */
void dl_map_remove(dl_map *map, dl_map_entry *entry);

/* In no order.  Fetch the next before removing the current; do not insert in between. */
dl_map_entry *dl_map_first(const dl_map *map);
dl_map_entry *dl_map_next(const dl_map *map, const dl_map_entry *entry);

static inline dl_bytes
dl_map_key(const dl_map_entry *entry)
{
    return (dl_bytes){entry->key, entry->key_size};
}

#endif
