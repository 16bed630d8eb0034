/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Gathers bytes of all ranks on all of them, over links along a binary tree of the
 * ranks:
 *
 *              0               up:   those of the ranks below, and the own
 *            /   \             down: those of all ranks
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
    /* set by dl_gather_run() */
    uint64_t sizes[DL_GATHER_NEIGHBOURS]; /* of their messages */
    uint64_t total;                       /* of this rank's */
} dl_gather;

/* Writes the tree's neighbours of a rank, the parent first, and returns their number. */
int dl_gather_neighbours(int rank, int size, int neighbours[DL_GATHER_NEIGHBOURS]);

/* Replaces `bytes`, those of this rank, by those of all ranks. */
dl_status dl_gather_run(dl_gather *gather, dl_buffer *bytes);

#endif
