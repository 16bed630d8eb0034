/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory for arrays that a group's backend may access faster than other memory.  It is
 * ordinary memory as well, outlives its group, and may be used with any other group. */
#ifndef DISTLITE_PG_REGION_H
#define DISTLITE_PG_REGION_H

#include <stddef.h>

#include "base/status.h"
#include "pg/group.h"

typedef struct dl_region dl_region;

struct dl_region {
    void *memory; /* zeroed at first; aligned to pages */
    size_t size;
    void (*free)(dl_region *);
};

/* Allocates memory of this process alone, for groups that have no rank to
 * share it with. */
dl_status dl_region_new(size_t size, dl_region **region);

/* Allocates memory that the group's other ranks on this host can use in place, or
 * memory of this process alone if the backend has no such thing. */
dl_status dl_group_share(dl_group *group, size_t size, dl_region **region);

/* Frees the region; no operation may use it any more.  NULL does nothing. */
void dl_region_free(dl_region *region);

#endif
