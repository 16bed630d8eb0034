/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How many cores the ranks of one host may keep busy: the union of their affinity masks,
 * but no more than the tightest CPU quota of a control group.  Decides whether a waiting
 * rank may spin, so it errs on the low side. */
#ifndef DISTLITE_PG_CPU_CORES_H
#define DISTLITE_PG_CPU_CORES_H

#include <stdint.h>

#define DL_CORES_WORDS 64 /* of 64 processors each: more than any kernel is built for */

/* Thousandths of a core; no quota. */
#define DL_CORES_UNLIMITED INT64_MAX

typedef struct dl_cores {
    uint64_t mask[DL_CORES_WORDS];
    int64_t quota;
} dl_cores;

/* Those of the calling process. */
void dl_cores_own(dl_cores *cores);

/* Adds what another rank may use. */
void dl_cores_join(dl_cores *all, const dl_cores *one);

/* Whole cores, at least 1. */
int dl_cores_count(const dl_cores *cores);

/* The quota of this process's control groups of both versions, with `root` put before
 * the paths of /proc and /sys ("" for the machine itself). */
int64_t dl_cores_quota(const char *root);

#endif
