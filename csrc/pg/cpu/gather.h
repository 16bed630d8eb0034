/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Gathers bytes of all ranks, over links along a binary tree of the ranks:
 *
 *              0               up:   those of the ranks below, and the own
 *            /   \             down: what each rank has for those below it
 *           1     2
 *          / \
 *         3   4
 *
 * So a rank has to know how to reach three others at most.  One that has the bytes of
 * all ranks already may leave neighbours out, and these do the same.  Knows nothing of
 * the bytes' meaning. */
#ifndef DISTLITE_PG_CPU_GATHER_H
#define DISTLITE_PG_CPU_GATHER_H

#include "base/buffer.h"
#include "pg/cpu/tcp/traffic.h"

/* The parent and two children. */
#define DL_GATHER_NEIGHBOURS 3

typedef struct dl_gather {
    /* set by the user */
    dl_traffic *traffic; /* borrowed; in an operation */
    int rank;
    int size;
    uint64_t limit;                       /* of the bytes of all ranks */
    int neighbours[DL_GATHER_NEIGHBOURS]; /* the parent first, if it is one of them */
    int neighbour_count;
    /* what has come from them, and goes to them: the sizes of messages, or a truth */
    uint64_t sizes[DL_GATHER_NEIGHBOURS];
    uint64_t totals[DL_GATHER_NEIGHBOURS];
} dl_gather;

/* Writes the tree's neighbours of a rank, the parent first, and returns their number. */
int dl_gather_neighbours(int rank, int size, int neighbours[DL_GATHER_NEIGHBOURS]);

/* Returns whether the parent is one of the neighbours. */
static inline bool
dl_gather_has_parent(const dl_gather *gather)
{
    return gather->neighbour_count > 0 && gather->neighbours[0] < gather->rank;
}

/* The steps, one after the other.  dl_gather_up() appends to `bytes`, those of this rank,
 * those of the ranks below it, and sends them to the parent; dl_gather_take_down() reads
 * what the parent sends, if there is one; dl_gather_send_down() sends `bytes`, by
 * neighbour, to the ranks below. */
dl_status dl_gather_up(dl_gather *gather, dl_buffer *bytes);
dl_status dl_gather_take_down(dl_gather *gather, dl_buffer *bytes);
dl_status dl_gather_send_down(dl_gather *gather, const dl_bytes *bytes);

/* The step after these: sets `*any` to whether it is true on any rank, if no rank has left
 * a neighbour out. */
dl_status dl_gather_any(dl_gather *gather, bool *any);

#endif
