/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays in the memory that the ranks of a host share: a stretch of the arena's file that
 * one rank owns and the others map when an operation first brings them there.  The place
 * of an array in the file is all that has to be said about it, and rides on the line of
 * the operation.  Stretches of the file are never used twice, so that what a peer has
 * mapped is either the array it was told of or nothing at all.
 *
 * A process keeps a list of its own such memory, in which every large array of an
 * operation is looked up by its address; views into one are found as well. */
#ifndef DISTLITE_PG_CPU_SHM_SHARED_H
#define DISTLITE_PG_CPU_SHM_SHARED_H

#include <stdbool.h>

#include "pg/cpu/shm/arena.h"
#include "pg/region.h"

/* Where an array lies, as peers are told.  All zero: not in shared memory. */
typedef struct dl_shared_place {
    uint64_t offset; /* of the region in the file */
    uint64_t size;   /* of the region */
    uint64_t start;  /* of the array in it */
} dl_shared_place;

/* Memory of this process's that the arena's other ranks can map. */
dl_status dl_shared_new(dl_arena *arena, size_t size, dl_region **region);

/* All zero where the bytes are not in memory of this arena's. */
dl_shared_place dl_shared_find(const dl_arena *arena, const void *data, size_t size);

/* What one group has mapped of other ranks' regions; the thread in an operation only. */
typedef struct dl_shared_views {
    const dl_arena *arena;
    struct dl_shared_view *views;
    int count; /* room for so many */
    uint64_t uses;
    uint8_t **arrays; /* room for one pointer of each rank */
} dl_shared_views;

dl_status dl_shared_views_init(dl_shared_views *views, const dl_arena *arena,
                               int ranks);
void dl_shared_views_fini(dl_shared_views *views);

/* `size` bytes at a place that another rank has told of; valid until as many other
 * regions as there are ranks have been looked at.  DL_PROTOCOL: there are not so many. */
dl_status dl_shared_views_map(dl_shared_views *views, const dl_shared_place *place,
                              size_t size, uint8_t **data);

#endif
