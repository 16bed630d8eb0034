/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether processes on other hosts still live, for all groups of a roster: a connection
 * to each that was asked about, over which nothing is said, and which the system ends
 * along with the process.  Made when somebody has reason to ask.  Every process has to
 * have room for its files: of too many, the one that was not asked about for longest
 * makes room for the next, and is made again when it is asked about again. */
#ifndef DISTLITE_PG_CPU_HEALTH_PROBES_H
#define DISTLITE_PG_CPU_HEALTH_PROBES_H

#include <pthread.h>

#include "pg/cpu/tcp/link.h"

/* Connections at a time, to any number of ranks. */
#define DL_PROBES_OPEN 64

/* Zeroed memory is valid, and knows nobody. */
typedef struct dl_probes {
    /* fixed after init; borrowed */
    int rank;
    int size;
    const dl_peer *peers; /* by rank */
    const dl_way *ways;   /* by rank */
    uint32_t fork_generation;
    pthread_mutex_t lock;
    /* guarded by lock */
    dl_link **links;  /* by rank; NULL: not asked about yet */
    uint64_t *looked; /* by rank: the look that it was last asked about in */
    uint64_t look;
    int open; /* links with a connection */
} dl_probes;

dl_status dl_probes_init(dl_probes *probes, const dl_probes *options);
void dl_probes_fini(dl_probes *probes);

/* DL_PEER_LOST: the process of `rank` has ended, or cannot be reached; texts call it
 * `name`.  DL_OK as far as is known.  Does not wait; from any thread. */
dl_status dl_probes_look(dl_probes *probes, int rank, int name);

#endif
