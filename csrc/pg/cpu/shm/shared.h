/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays in the memory that the ranks of a host share.  An array lies in a region, a
 * stretch of the arena's file that one rank owns and the others map when an operation
 * first uses it.  The array's place in the file is all that peers need to know; it is
 * sent on the line of the operation.  Stretches of the file are never reused, so what a
 * peer has mapped is either the array whose place it received, or holes.
 *
 * Each process keeps a list of its own regions, in which every large array of an
 * operation is looked up by its address; views into a region are found as well. */
#ifndef DISTLITE_PG_CPU_SHM_SHARED_H
#define DISTLITE_PG_CPU_SHM_SHARED_H

#include "pg/cpu/shm/arena.h"
#include "pg/region.h"

/* Where an array lies, as it is sent to peers.  All zero if it is not in shared
 * memory. */
typedef struct dl_shared_place {
    uint64_t offset; /* of the region in the file */
    uint64_t size;   /* of the region */
    uint64_t start;  /* of the array in it */
} dl_shared_place;

/* Creates memory of this process that the other ranks of the arena can map. */
dl_status dl_shared_new(dl_arena *arena, size_t size, dl_region **region);

/* Returns the place of the bytes, all zero if they are not in this arena's memory. */
dl_shared_place dl_shared_find(const dl_arena *arena, const void *data, size_t size);

/* The regions of other ranks that one group has mapped.  Only for the thread that is in
 * an operation. */
typedef struct dl_shared_views {
    const dl_arena *arena;
    struct dl_shared_view *views;
    int count; /* entries of `views` */
    uint64_t uses;
    uint8_t **arrays; /* one pointer per rank, for the caller's use */
} dl_shared_views;

dl_status dl_shared_views_init(dl_shared_views *views, const dl_arena *arena,
                               int ranks);
void dl_shared_views_fini(dl_shared_views *views);

/* Returns in `*data` the `size` bytes at a place that another rank has announced,
 * mapping the region if necessary.  They stay mapped until as many other regions as
 * there are ranks have been used.  DL_PROTOCOL: the region is smaller than that. */
dl_status dl_shared_views_map(dl_shared_views *views, const dl_shared_place *place,
                              size_t size, uint8_t **data);

#endif
