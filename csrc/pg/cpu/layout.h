/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The layout of a group: which of its ranks share a host.  It is the same on every
 * rank.  Hosts are numbered in the order of their lowest ranks, which are their
 * leaders. */
#ifndef DISTLITE_PG_CPU_LAYOUT_H
#define DISTLITE_PG_CPU_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Zeroed memory is valid.  Nothing changes after init, and all but `memory` can be
 * borrowed by a copy. */
typedef struct dl_layout {
    int rank;
    int size;
    int host; /* of this rank */
    int host_count;
    int *memory;              /* that it owns */
    const int *host_of;       /* by rank */
    const int *local_rank_of; /* by rank: number of lower ranks on its host */
    const int *ranks;         /* host after host, in ascending order */
    const int *first; /* by host: index of its first rank in `ranks`; and the end */
} dl_layout;

/* Ranks with the same entry in `hosts` share a host; the numbers are 0 or more, and
 * need not be contiguous, but a table with an entry for each is made.  Copies what it
 * needs of `hosts`.  Returns DL_NO_MEMORY, and leaves nothing to free. */
dl_status dl_layout_init(dl_layout *layout, int rank, int size, const int *hosts);
void dl_layout_fini(dl_layout *layout);

/* The two parts of dl_layout_init(), for memory with room for dl_layout_count_ints():
 * dl_layout_write() fills it in, the same for all ranks, and dl_layout_of() returns the
 * layout in it as `rank` sees it. */
size_t dl_layout_count_ints(int size);
dl_status dl_layout_write(int *memory, int size, const int *hosts, int *host_count);
dl_layout dl_layout_of(const int *memory, int host_count, int size, int rank);

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
