/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Probes detect whether processes on other hosts are alive, for all groups of a
 * bootstrap.  A probe is a connection that carries nothing after its introduction, and
 * that the kernel closes when the process ends.  It is made when a rank is first
 * checked.  As the number of descriptors of a process is limited, at most
 * DL_PROBES_OPEN probes are open: the one that was least recently used is closed for a
 * new one, and is made again when its rank is checked again. */
#ifndef DISTLITE_PG_CPU_HEALTH_PROBES_H
#define DISTLITE_PG_CPU_HEALTH_PROBES_H

#include <pthread.h>

#include "pg/cpu/tcp/link.h"

/* Limit of the open connections, whatever the number of ranks. */
#define DL_PROBES_OPEN 64

/* Zeroed memory is valid: every check of it returns DL_OK. */
typedef struct dl_probes {
    /* fixed after init; borrowed */
    int rank;
    int size;
    dl_peers peers;
    dl_tcp_contacts tcp_contacts;
    uint32_t fork_generation;
    pthread_mutex_t lock;
    /* guarded by lock */
    struct dl_probe *entries; /* by rank, and then again for the ranks' life ports */
    uint64_t look;
    int open;       /* number of links with a connection */
    bool is_silent; /* at the last look nothing answered at the rank's host */
} dl_probes;

/* Copies the first four members of `options`, which are borrowed.  dl_probes_fini()
 * closes no connections in a forked child. */
dl_status dl_probes_init(dl_probes *probes, const dl_probes *options);
void dl_probes_fini(dl_probes *probes);

/* Returns DL_PEER_LOST if the process of `rank` has ended or cannot be reached, and
 * DL_OK as long as neither is known.  Error texts call the rank `name`.  Does not
 * block; may be called from any thread. */
dl_status dl_probes_poll(dl_probes *probes, int rank, int name);

/* The same for a caller that a rank which has left in order does not concern: fails
 * only if the process did not say that it leaves, and its probe was open before. */
dl_status dl_probes_lost(dl_probes *probes, int rank, int name);

/* Returns whether the process of `rank` has ended, or its host does not answer.  False
 * for a process that lives and has left in order.  Does not block; may be called from
 * any thread. */
bool dl_probes_has_ended(dl_probes *probes, int rank);

#endif
