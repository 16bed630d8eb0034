/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hash.h"
#include "base/map.h"
#include "check.h"

typedef struct named {
    dl_map_entry node;
    char name[24];
    int number;
} named;

static dl_bytes
name_of(named *entry, int number)
{
    int size = snprintf(entry->name, sizeof entry->name, "key/%d", number);

    entry->number = number;
    return (dl_bytes){(const uint8_t *)entry->name, (size_t)size};
}

static named *
find(const dl_map *map, int number)
{
    named probe;
    dl_map_entry *node = dl_map_find(map, name_of(&probe, number));

    return node == NULL ? NULL : DL_MAP_ENTRY(node, named, node);
}

static named *
fill(dl_map *map, int count)
{
    named *entries = calloc((size_t)count, sizeof *entries);

    for (int i = 0; i < count; i++) {
        dl_map_insert(map, &entries[i].node, name_of(&entries[i], i));
    }
    return entries;
}

/* Each number once, or a failed check. */
static void
check_iteration(const dl_map *map, int count, bool (*is_expected)(int))
{
    char *seen = calloc((size_t)count, 1);
    size_t visited = 0;

    for (dl_map_entry *node = dl_map_first(map); node != NULL;
         node = dl_map_next(map, node)) {
        int number = DL_MAP_ENTRY(node, named, node)->number;
        CHECK(is_expected(number));
        CHECK_EQUAL(seen[number], 0);
        seen[number] = 1;
        visited++;
    }
    CHECK_EQUAL(visited, map->count);
    free(seen);
}

static bool
is_any(int number)
{
    return number >= 0;
}

static bool
is_odd(int number)
{
    return number % 2 == 1;
}

CHECK_CASE(siphash_1_3_gives_its_known_answers)
{
    /* The messages "", 00, 00 01, ... under the key 00 01 ... 0f. */
    static const struct {
        size_t size;
        uint64_t hash;
    } answers[] = {
        {0, UINT64_C(0xabac0158050fc4dc)},  {1, UINT64_C(0xc9f49bf37d57ca93)},
        {8, UINT64_C(0x369095118d299a8e)},  {15, UINT64_C(0xd320d86d2a519956)},
        {16, UINT64_C(0xcc4fdd1a7d908b66)},
    };
    const uint64_t seed[2] = {UINT64_C(0x0706050403020100),
                              UINT64_C(0x0f0e0d0c0b0a0908)};
    uint8_t message[16];

    for (size_t i = 0; i < sizeof message; i++) {
        message[i] = (uint8_t)i;
    }
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        CHECK(dl_hash_seeded((dl_bytes){message, answers[i].size}, seed)
              == answers[i].hash);
    }
}

CHECK_CASE(the_seed_differs_between_processes)
{
    uint64_t theirs;
    int ends[2];

    /* Neither process has hashed anything before the fork. */
    CHECK(pipe(ends) == 0);
    if (fork() == 0) {
        uint64_t mine = dl_hash(DL_LITERAL("key"));
        _exit(write(ends[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
    }
    CHECK(read(ends[0], &theirs, sizeof theirs) == sizeof theirs);
    CHECK(dl_hash(DL_LITERAL("key")) != theirs);
    CHECK(dl_hash(DL_LITERAL("key")) == dl_hash(DL_LITERAL("key")));
}

CHECK_CASE(zeroed_memory_is_an_empty_map)
{
    dl_map map = {0};

    CHECK(dl_map_find(&map, DL_LITERAL("")) == NULL);
    CHECK(dl_map_first(&map) == NULL);
    dl_map_fini(&map);
}

CHECK_CASE(finds_what_was_inserted_and_nothing_else)
{
    dl_map map = {0};
    named *entries = fill(&map, 5000);

    CHECK_EQUAL(map.count, 5000);
    for (int i = 0; i < 5000; i++) {
        CHECK(find(&map, i) == &entries[i]);
        CHECK(find(&map, i + 5000) == NULL);
    }
    check_iteration(&map, 5000, is_any);
    dl_map_fini(&map);
    free(entries);
}

CHECK_CASE(keys_are_bytes_zero_and_empty_included)
{
    dl_map map = {0};
    dl_map_entry entries[4] = {0};
    const dl_bytes keys[4] = {DL_LITERAL(""), DL_LITERAL("\0"), DL_LITERAL("\0\0"),
                              DL_LITERAL("a\0b")};

    for (int i = 0; i < 4; i++) {
        CHECK(dl_map_find(&map, keys[i]) == NULL);
        dl_map_insert(&map, &entries[i], keys[i]);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(dl_map_find(&map, keys[i]) == &entries[i]);
        CHECK(dl_bytes_equal(dl_map_key(&entries[i]), keys[i]));
    }
    CHECK(dl_map_find(&map, DL_LITERAL("a")) == NULL);
    dl_map_fini(&map);
}

CHECK_CASE(removal_takes_out_one)
{
    dl_map map = {0};
    named *entries = fill(&map, 1000);

    for (int i = 0; i < 1000; i += 2) {
        dl_map_remove(&map, &entries[i].node);
    }
    CHECK_EQUAL(map.count, 500);
    for (int i = 0; i < 1000; i++) {
        CHECK(find(&map, i) == (is_odd(i) ? &entries[i] : NULL));
    }
    check_iteration(&map, 1000, is_odd);
    dl_map_insert(&map, &entries[4].node, name_of(&entries[4], 4));
    CHECK(find(&map, 4) == &entries[4]);
    dl_map_fini(&map);
    free(entries);
}

CHECK_CASE(the_current_entry_may_be_removed_while_iterating)
{
    dl_map map = {0};
    named *entries = fill(&map, 300);
    dl_map_entry *node = dl_map_first(&map);

    while (node != NULL) {
        dl_map_entry *next = dl_map_next(&map, node);
        dl_map_remove(&map, node);
        node = next;
    }
    CHECK_EQUAL(map.count, 0);
    CHECK(dl_map_first(&map) == NULL);
    dl_map_fini(&map);
    free(entries);
}

CHECK_CASE(inserts_succeed_without_memory_for_buckets)
{
    dl_map map = {0};
    named *entries = calloc(100, sizeof *entries);

    for (int i = 0; i < 100; i++) {
        dl_check_fail_allocation_at(1);
        dl_map_insert(&map, &entries[i].node, name_of(&entries[i], i));
        CHECK(dl_check_allocation_failed() == (i > 0));
    }
    CHECK(map.buckets == NULL);
    for (int i = 0; i < 100; i++) {
        CHECK(find(&map, i) == &entries[i]);
    }
    check_iteration(&map, 100, is_any);
    dl_map_fini(&map);
    free(entries);
}
