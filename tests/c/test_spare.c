/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdint.h>
#include <sys/mman.h>

#include "pg/spare.h"
#include "ranks.h"

#define MIB ((size_t)1 << 20)

static dl_region *
taken(size_t size)
{
    dl_region *region = NULL;

    CHECK_OK(dl_spare_new(size, &region));
    CHECK(region->size >= size);
    return region;
}

static bool
is_mapped(void *memory)
{
    unsigned char is_there;

    return mincore(memory, 4096, &is_there) == 0;
}

CHECK_CASE(freed_memory_is_reused)
{
    dl_region *region = taken(3 * MIB);
    void *memory = region->memory;

    CHECK_EQUAL((uintptr_t)memory % (2 * MIB), 0);
    memset(memory, 1, region->size);
    dl_region_free(region);
    CHECK(is_mapped(memory));
    region = taken(4 * MIB);
    CHECK(region->memory == memory);
    dl_region *other = taken(4 * MIB);
    CHECK(other->memory != memory);
    dl_region_free(region);
    dl_region_free(other);
    dl_spare_clear();
    CHECK(!is_mapped(memory));
    dl_region_free(NULL);
}

CHECK_CASE(the_smallest_that_has_room_is_used_unless_it_is_much_too_large)
{
    dl_region *regions[] = {taken(8 * MIB), taken(6 * MIB), taken(16 * MIB)};
    void *smallest = regions[1]->memory;
    void *next = regions[0]->memory;
    void *largest = regions[2]->memory;

    for (int i = 0; i < 3; i++) {
        dl_region_free(regions[i]);
    }
    for (int i = 0; i < 3; i++) {
        regions[i] = taken(3 * MIB);
    }
    CHECK(regions[0]->memory == smallest);
    CHECK(regions[1]->memory == next);
    CHECK_EQUAL(regions[2]->size, 4 * MIB);
    CHECK(is_mapped(largest));
    for (int i = 0; i < 3; i++) {
        dl_region_free(regions[i]);
    }
    dl_spare_clear();
}

CHECK_CASE(no_more_than_the_limit_waits)
{
    enum { COUNT = 5 };
    dl_region *regions[COUNT];
    void *first, *second;

    for (int i = 0; i < COUNT; i++) {
        regions[i] = taken(DL_SPARE_LIMIT / 4);
    }
    second = regions[1]->memory;
    first = regions[0]->memory;
    for (int i = 0; i < COUNT; i++) {
        CHECK(is_mapped(first));
        dl_region_free(regions[i]);
    }
    CHECK(!is_mapped(first));
    CHECK(is_mapped(second));
    dl_region *huge = taken(DL_SPARE_LIMIT + 1);
    first = huge->memory;
    dl_region_free(huge);
    CHECK(!is_mapped(first));
    CHECK(is_mapped(second));
    dl_spare_clear();
}

CHECK_CASE(more_than_there_is_fails)
{
    dl_region *region = NULL;

    CHECK_STATUS(dl_spare_new(SIZE_MAX, &region), DL_NO_MEMORY);
    CHECK_STATUS(dl_spare_new(SIZE_MAX / 2, &region), DL_NO_MEMORY);
    CHECK_CONTAINS(dl_last_error()->text, "bytes for a receive buffer: ");
    CHECK(region == NULL);
}

/* Each rank fills its memory with its own number. */
static void
use(int rank, int size, void *context)
{
    (void)size, (void)context;
    for (int turn = 0; turn < 200; turn++) {
        dl_region *region = taken((size_t)(1 + turn % 3) * 2 * MIB);
        uint8_t *memory = region->memory;
        for (size_t at = 0; at < region->size; at += MIB) {
            memory[at] = (uint8_t)rank;
        }
        for (size_t at = 0; at < region->size; at += MIB) {
            CHECK_EQUAL(memory[at], rank);
        }
        dl_region_free(region);
    }
}

CHECK_CASE(two_threads_never_get_the_same_region)
{
    dl_run_ranks(4, use, NULL);
    dl_spare_clear();
}

CHECK_CASE(a_failed_allocation_leaves_nothing)
{
    dl_region *region = NULL;

    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_spare_new(MIB, &region), DL_NO_MEMORY);
    dl_check_fail_allocation_at(0);
    CHECK(region == NULL);
}

CHECK_CASE(a_forked_child_has_its_own)
{
    dl_region *region = taken(2 * MIB);
    uint8_t *memory = region->memory;
    int status;

    memory[0] = 1;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bool is_copy = memory[0] == 1;
        dl_region_free(region);
        memory = taken(2 * MIB)->memory;
        memory[0] = 2;
        _exit(!is_copy);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_EQUAL(memory[0], 1);
    dl_region_free(region);
    dl_spare_clear();
}
