/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/shared.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "net/socket.h"
#include "pg/cpu/algorithms/algorithms.h"
#include "ranks.h"

#define COUNT 50000 /* of float32 */
#define SKIPPED 5
#define TURNS 40

static dl_arena shared;

static void
open_copy(dl_arena *arena, int size)
{
    int copy = fcntl(shared.file, F_DUPFD_CLOEXEC, 0);

    CHECK(copy >= 0);
    dl_fork_guard(copy);
    CHECK_OK(dl_arena_open(arena, size, copy));
}

static int64_t
bytes_used(void)
{
    struct stat info;

    CHECK(fstat(shared.file, &info) == 0);
    return (int64_t)info.st_blocks * 512;
}

typedef struct member {
    dl_arena arena;
    dl_shared_views views;
    dl_board board;
    int rank;
    int size;
    uint64_t sequence;
} member;

static void
join(member *self, int rank, int size)
{
    self->rank = rank;
    self->size = size;
    self->sequence = 0;
    open_copy(&self->arena, size);
    CHECK_OK(dl_shared_views_init(&self->views, &self->arena, size));
    dl_board_options options = {
        .rank = rank, .size = size, .group_name = "g", .views = &self->views};
    CHECK_OK(dl_board_init(&self->board, &options, self->arena.home.memory,
                           self->arena.home.size));
}

static void
leave(member *self)
{
    dl_board_fini(&self->board);
    dl_shared_views_fini(&self->views);
    dl_arena_fini(&self->arena);
}

/* Leaves what stands around the elements as it is. */
static void
reduce(member *self, float *memory)
{
    int64_t shape = COUNT, stride = sizeof(float);
    dl_call args = {.op = DL_ALL_REDUCE, .reduction = DL_SUM, .factor = 1};
    dl_op_context op = {.sequence = ++self->sequence,
                        .deadline = dl_deadline_after(20 * DL_SECOND)};

    args.tensor = (dl_tensor){.data = memory + SKIPPED,
                              .count = COUNT,
                              .item_size = sizeof(float),
                              .dtype = DL_FLOAT32,
                              .ndim = 1,
                              .is_contiguous = true,
                              .is_writable = true,
                              .shape = &shape,
                              .strides = &stride};
    for (int i = 0; i < COUNT; i++) {
        memory[SKIPPED + i] = (float)(i % 101 + self->rank);
    }
    CHECK_OK(dl_all_reduce_select(&self->board, &op, &args));
    int ranks = self->size * (self->size - 1) / 2;
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQUAL(memory[SKIPPED + i], (float)(self->size * (i % 101) + ranks));
    }
    CHECK_EQUAL(memory[SKIPPED - 1], 0);
    CHECK_EQUAL(memory[SKIPPED + COUNT], 0);
}

static void
reduce_by_turns(int rank, int size, void *unused)
{
    size_t bytes = (COUNT + 2 * SKIPPED) * sizeof(float);
    float *plain = calloc(1, bytes);
    member self;

    (void)unused;
    join(&self, rank, size);
    for (int turn = 0; turn < TURNS; turn++) {
        dl_region *region;
        CHECK_OK(dl_shared_new(&self.arena, bytes, &region));
        /* All share, one does, all but one do, nobody does. */
        bool does = turn % 4 == 0 || (turn % 4 == 1 && rank == turn % size)
                    || (turn % 4 == 2 && rank != turn % size);
        reduce(&self, does ? region->memory : plain);
        reduce(&self, does ? region->memory : plain);
        dl_region_free(region);
    }
    leave(&self);
    free(plain);
}

static void
run(int size, int cores_per_rank)
{
    CHECK_OK(dl_arena_create(&shared, size, cores_per_rank));
    dl_run_ranks(size, reduce_by_turns, NULL);
    /* The board's slots at most. */
    CHECK(bytes_used() <= (int64_t)dl_arena_area(size) + 256 * 1024);
    dl_arena_fini(&shared);
}

CHECK_CASE(two_ranks_reduce_in_place)
{
    run(2, true);
}

CHECK_CASE(three_ranks_reduce_in_place)
{
    run(3, false);
}

CHECK_CASE(an_array_is_found_by_any_of_its_addresses)
{
    dl_arena other;
    dl_region *regions[3];
    char outside[16];

    CHECK_OK(dl_arena_create(&shared, 2, false));
    CHECK_OK(dl_arena_create(&other, 2, false));
    CHECK(dl_shared_find(&shared, outside, 1).size == 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dl_shared_new(&shared, 10000, &regions[i]));
        CHECK_EQUAL(regions[i]->size, 12288);
    }
    char *memory = regions[1]->memory;
    dl_shared_place place = dl_shared_find(&shared, memory + 100, 50);
    CHECK(place.size == 12288 && place.start == 100 && place.offset % 4096 == 0);
    CHECK(dl_shared_find(&shared, memory + 12288 - 50, 50).size == 12288);
    CHECK(dl_shared_find(&shared, memory + 12288 - 50, 51).size == 0);
    CHECK(dl_shared_find(&other, memory, 50).size == 0);
    CHECK(dl_shared_find(&shared, outside, 1).size == 0);
    dl_region_free(regions[1]);
    CHECK(dl_shared_find(&shared, memory, 50).size == 0);
    dl_arena_fini(&shared);
    /* Both outlive it. */
    memset(regions[0]->memory, 1, regions[0]->size);
    dl_region_free(regions[0]);
    dl_region_free(regions[2]);
    dl_region_free(NULL);
    dl_arena_fini(&other);
}

CHECK_CASE(more_regions_than_are_kept_mapped)
{
    dl_region *regions[80];
    dl_shared_views views;
    uint8_t *data;

    CHECK_OK(dl_arena_create(&shared, 2, false));
    CHECK_OK(dl_shared_views_init(&views, &shared, 2));
    for (int i = 0; i < 80; i++) {
        CHECK_OK(dl_shared_new(&shared, 4096, &regions[i]));
        ((uint8_t *)regions[i]->memory)[7] = (uint8_t)i;
    }
    for (int i = 0; i < 160; i++) {
        dl_region *region = regions[i * 7 % 80];
        dl_shared_place place =
            dl_shared_find(&shared, (char *)region->memory + 7, 100);
        CHECK_OK(dl_shared_views_map(&views, &place, 100, &data));
        CHECK(data != (uint8_t *)region->memory + 7);
        CHECK_EQUAL(data[0], i * 7 % 80);
        CHECK_STATUS(dl_shared_views_map(&views, &place, 4096, &data), DL_PROTOCOL);
    }
    for (int i = 0; i < 80; i++) {
        dl_region_free(regions[i]);
    }
    dl_shared_views_fini(&views);
    dl_shared_views_fini(&views);
    dl_arena_fini(&shared);
}

/* As an operation of several ranks looks at one region of each. */
CHECK_CASE(mapped_regions_stay_while_an_operation_maps_more)
{
    dl_region *regions[50];
    dl_shared_views views;
    uint8_t *data[3];

    CHECK_OK(dl_arena_create(&shared, 3, false));
    CHECK_OK(dl_shared_views_init(&views, &shared, 3));
    for (int i = 0; i < 50; i++) {
        CHECK_OK(dl_shared_new(&shared, 4096, &regions[i]));
        ((uint8_t *)regions[i]->memory)[0] = (uint8_t)i;
    }
    for (int turn = 0; turn < 150; turn++) {
        /* One that is seen all the time, one from long ago, one that is new. */
        int chosen[] = {0, (turn + 3) % 50, (turn + 7) % 50};
        for (int i = 0; i < 3; i++) {
            dl_shared_place place =
                dl_shared_find(&shared, regions[chosen[i]]->memory, 1);
            CHECK_OK(dl_shared_views_map(&views, &place, 4096, &data[i]));
        }
        for (int i = 0; i < 3; i++) {
            CHECK_EQUAL(data[i][0], chosen[i]);
        }
    }
    for (int i = 0; i < 50; i++) {
        dl_region_free(regions[i]);
    }
    dl_shared_views_fini(&views);
    dl_arena_fini(&shared);
}

/* Any of the allocations of the first array may fail. */
CHECK_CASE(an_array_that_is_not_made_keeps_no_pages)
{
    dl_region *region = NULL;
    dl_status status;
    long number = 0;

    CHECK_OK(dl_arena_create(&shared, 2, false));
    int64_t before = bytes_used();
    do {
        CHECK_EQUAL(bytes_used(), before);
        dl_check_fail_allocation_at(++number);
        status = dl_shared_new(&shared, (size_t)3 << 20, &region);
        dl_check_fail_allocation_at(0);
    } while (status == DL_NO_MEMORY);
    CHECK_OK(status);
    CHECK(number > 2);
    CHECK_EQUAL(bytes_used(), before + (3 << 20));
    region->free(region);
    CHECK_EQUAL(bytes_used(), before);
    dl_arena_fini(&shared);
}
