/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The layout of a group: which of its ranks share a host.  It is the same on every
 * rank.  Hosts are numbered in the order of their lowest ranks, which are their
 * leaders. */
#ifndef DISTLITE_PG_CPU_LAYOUT_H
#define DISTLITE_PG_CPU_LAYOUT_H

#include <stdbool.h>

#include "base/status.h"

/* Zeroed memory is valid.  Nothing changes after init. */
typedef struct dl_layout {
    int rank;
    int size;
    int host; /* of this rank */
    int host_count;
    int *memory;
    int *host_of;       /* by rank */
    int *local_rank_of; /* by rank: number of lower ranks on its host */
    int *ranks;         /* host after host, in ascending order */
    int *first;         /* by host: index of its first rank in `ranks`; and the end */
} dl_layout;

/* Ranks with the same entry in `hosts` share a host; the numbers are 0 or more, and
 * need not be contiguous, but a table with an entry for each is made.  Copies what it
 * needs of `hosts`.  Returns DL_NO_MEMORY, and leaves nothing to free. */
dl_status dl_layout_init(dl_layout *layout, int rank, int size, const int *hosts);
void dl_layout_fini(dl_layout *layout);

/* Returns the ranks of a host, in ascending order: dl_layout_count() of them. */
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

/* Returns whether this rank leads its host. */
static inline bool
dl_layout_leads(const dl_layout *layout)
{
    return layout->local_rank_of[layout->rank] == 0;
}

#endif
