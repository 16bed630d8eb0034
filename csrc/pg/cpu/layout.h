/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ranks of a group share a host, on every rank the same: hosts are numbered in the
 * order of their lowest ranks, which lead them. */
#ifndef DISTLITE_PG_CPU_LAYOUT_H
#define DISTLITE_PG_CPU_LAYOUT_H

#include <stdbool.h>

#include "base/status.h"

/* Zeroed memory is valid; fixed after init. */
typedef struct dl_layout {
    int rank;
    int size;
    int host; /* this rank's */
    int host_count;
    int *memory;
    int *host_of;  /* by rank */
    int *place_of; /* by rank: how many ranks of its host are lower */
    int *ranks;    /* those of one host after the other, rising */
    int *first;    /* by host: where its ranks begin in `ranks`; and the end */
} dl_layout;

/* Ranks whose entry in `hosts` is the same number share a host. */
dl_status dl_layout_init(dl_layout *layout, int rank, int size, const int *hosts);
void dl_layout_fini(dl_layout *layout);

/* The ranks of a host. */
static inline const int *
dl_layout_ranks(const dl_layout *layout, int host)
{
    return layout->ranks + layout->first[host];
}

static inline int
dl_layout_count(const dl_layout *layout, int host)
{
    return layout->first[host + 1] - layout->first[host];
}

static inline int
dl_layout_leader(const dl_layout *layout, int host)
{
    return layout->ranks[layout->first[host]];
}

static inline bool
dl_layout_leads(const dl_layout *layout)
{
    return layout->place_of[layout->rank] == 0;
}

#endif
