/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The number of cores that the ranks of one host may keep busy: the union of their
 * affinity masks, but no more than the tightest CPU quota of a control group.  It
 * decides whether a waiting rank may spin, so a doubtful case counts as fewer cores. */
#ifndef DISTLITE_PG_CPU_CORES_H
#define DISTLITE_PG_CPU_CORES_H

#include <stdint.h>

#define DL_CORES_WORDS 64 /* of 64 processors each: more than any kernel supports */

/* A quota is in thousandths of a core; this is none. */
#define DL_CORES_UNLIMITED INT64_MAX

typedef struct dl_cores {
    uint64_t mask[DL_CORES_WORDS];
    int64_t quota;
} dl_cores;

/* Gives the affinity mask of the calling thread and the quota of its process.  A mask
 * that cannot be read is empty. */
void dl_cores_own(dl_cores *cores);

/* Adds the cores of another rank to `all`. */
void dl_cores_join(dl_cores *all, const dl_cores *one);

/* Returns the number of whole cores, at least 1. */
int dl_cores_count(const dl_cores *cores);

/* Returns the lowest quota of this process's control groups, of version 2.  `root` is
 * put before the paths of /proc and /sys; it is "" except in tests. */
int64_t dl_cores_quota(const char *root);

#endif
