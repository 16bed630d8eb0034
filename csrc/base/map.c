/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/map.h"

#include <stdlib.h>

#include "base/hash.h"

/* The first allocated array: most maps that outgrow one bucket hold a handful of
 * keys. */
#define FIRST_BUCKET_COUNT 16

/* Each entry keeps half of its hash: 32 bits are enough for as many buckets as there
 * will ever be, and growing the map need not hash again. */
static uint32_t
hash_of(dl_bytes key)
{
    return (uint32_t)dl_hash(key);
}

static dl_map_entry **
bucket_of(const dl_map *map, uint32_t hash)
{
    /* The cast removes const from `single`; lookups do not write through the result. */
    return map->buckets == NULL ? (dl_map_entry **)&map->single
                                : &map->buckets[hash & map->mask];
}

void
dl_map_fini(dl_map *map)
{
    free(map->buckets);
    *map = (dl_map){0};
}

dl_map_entry *
dl_map_find(const dl_map *map, dl_bytes key)
{
    uint32_t hash = hash_of(key);

    for (dl_map_entry *entry = *bucket_of(map, hash); entry != NULL;
         entry = entry->next) {
        /* The hash is compared first, so that the keys of other entries are not
         * touched. */
        if (entry->hash == hash && dl_bytes_equal(dl_map_key(entry), key)) {
            return entry;
        }
    }
    return NULL;
}

static void
link_entry(dl_map *map, dl_map_entry *entry)
{
    dl_map_entry **bucket = bucket_of(map, entry->hash);

    entry->next = *bucket;
    *bucket = entry;
}

/* Doubles the number of buckets.  Without memory the map stays as it is and still
 * works. */
static void
grow_buckets(dl_map *map)
{
    size_t old_count = map->buckets == NULL ? 1 : map->mask + 1;
    size_t count = map->buckets == NULL ? FIRST_BUCKET_COUNT : old_count * 2;
    dl_map_entry **buckets = calloc(count, sizeof *buckets);

    if (buckets == NULL) {
        return;
    }
    dl_map old = *map;
    map->buckets = buckets;
    map->mask = count - 1;
    map->single = NULL;
    /* Entries are linked again in place: pointers to them stay valid. */
    for (size_t i = 0; i < old_count; i++) {
        dl_map_entry *entry = old.buckets == NULL ? old.single : old.buckets[i];
        while (entry != NULL) {
            dl_map_entry *next = entry->next;
            link_entry(map, entry);
            entry = next;
        }
    }
    free(old.buckets);
}

void
dl_map_insert(dl_map *map, dl_map_entry *entry, dl_bytes key)
{
    /* At most one entry per bucket on average. */
    if (map->count > map->mask) {
        grow_buckets(map);
    }
    entry->key = key.data;
    entry->key_size = (uint32_t)key.size;
    entry->hash = hash_of(key);
    link_entry(map, entry);
    map->count++;
}

void
dl_map_remove(dl_map *map, dl_map_entry *entry)
{
    /* Chains have about one entry: searching the chain again costs less than a back
     * pointer in every entry of every map. */
    dl_map_entry **place = bucket_of(map, entry->hash);

    while (*place != entry) {
        place = &(*place)->next;
    }
    *place = entry->next;
    entry->next = NULL;
    map->count--;
}

static dl_map_entry *
first_from(const dl_map *map, size_t bucket)
{
    for (; bucket <= map->mask; bucket++) {
        if (map->buckets[bucket] != NULL) {
            return map->buckets[bucket];
        }
    }
    return NULL;
}

dl_map_entry *
dl_map_first(const dl_map *map)
{
    return map->buckets == NULL ? map->single : first_from(map, 0);
}

dl_map_entry *
dl_map_next(const dl_map *map, const dl_map_entry *entry)
{
    if (entry->next != NULL || map->buckets == NULL) {
        return entry->next;
    }
    return first_from(map, (entry->hash & map->mask) + 1);
}
