/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A hash map from byte strings to structures of the caller, which embed a dl_map_entry
 * and keep the bytes of the key.  The map allocates only its buckets, and inserting
 * cannot fail: without memory for more buckets the chains grow longer.  The hash has a
 * random seed per process, so that keys from the network cannot be chosen to collide.
 * Zeroed memory is an empty map.  No locks: the caller serialises access. */
#ifndef DISTLITE_BASE_MAP_H
#define DISTLITE_BASE_MAP_H

#include "base/bytes.h"

/* Zeroed while in no map. */
typedef struct dl_map_entry {
    struct dl_map_entry *next; /* in the same bucket */
    const uint8_t *key;        /* the caller's memory */
    uint32_t key_size;
    uint32_t hash;
} dl_map_entry;

typedef struct dl_map {
    dl_map_entry **buckets; /* NULL: `single` is the only bucket */
    dl_map_entry *single;   /* the bucket of a map that never grew */
    size_t mask;            /* number of buckets, a power of two, less one */
    size_t count;
} dl_map;

#define DL_MAP_ENTRY(entry, type, member) \
    ((type *)(void *)((char *)(entry) - offsetof(type, member)))

/* Frees the buckets; the entries are the caller's. */
void dl_map_fini(dl_map *map);

/* Returns the entry of `key`, or NULL if there is none. */
dl_map_entry *dl_map_find(const dl_map *map, dl_bytes key);

/* Adds `entry`.  `key` must not be in the map, has at most UINT32_MAX bytes, and must
 * outlive the entry. */
void dl_map_insert(dl_map *map, dl_map_entry *entry, dl_bytes key);

/* Removes `entry`, which must be in the map. */
void dl_map_remove(dl_map *map, dl_map_entry *entry);

/* Iterate over the entries in no particular order; NULL at the end.  Get the next entry
 * before removing the current one, and do not insert meanwhile. */
dl_map_entry *dl_map_first(const dl_map *map);
dl_map_entry *dl_map_next(const dl_map *map, const dl_map_entry *entry);

static inline dl_bytes
dl_map_key(const dl_map_entry *entry)
{
    return (dl_bytes){entry->key, entry->key_size};
}

#endif
