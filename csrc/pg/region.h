/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory for arrays that a group's backend may reach better than other memory.  It is
 * ordinary memory as well, outlives its group, and may be used with any other. */
#ifndef DISTLITE_PG_REGION_H
#define DISTLITE_PG_REGION_H

#include <stddef.h>

#include "base/status.h"
#include "pg/group.h"

typedef struct dl_region dl_region;

struct dl_region {
    void *memory; /* zeros at first, aligned to pages */
    size_t size;
    void (*free)(dl_region *);
};

/* Of a process's own: for groups without anybody to share with. */
dl_status dl_region_new(size_t size, dl_region **region);

/* Memory that the group's other ranks on this host can use in place; of the process's own
 * where the backend has no such thing. */
dl_status dl_group_share(dl_group *group, size_t size, dl_region **region);

/* No operation may be going on in the memory.  NULL is left alone. */
void dl_region_free(dl_region *region);

#endif
