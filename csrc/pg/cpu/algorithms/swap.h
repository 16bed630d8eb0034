/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two ranks that have a core each pass whole arrays to each other through their slots,
 * and each computes its result from both.  That moves as many bytes as if each computed
 * a half and copied the other half, with one meeting in place of three. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_SWAP_H
#define DISTLITE_PG_CPU_ALGORITHMS_SWAP_H

#include "pg/cpu/shm/board.h"

typedef struct dl_swap {
    dl_board *board;
    uint64_t rounds;
    uint64_t window; /* from dl_board_divide_slots() */
    /* Writes this rank's slot, and reads the other's. */
    void (*fill)(const void *context, uint64_t round);
    void (*drain)(const void *context, uint64_t round);
    const void *context;
} dl_swap;

/* Returns whether the board's ranks are two that have a core each. */
bool dl_swap_suits(const dl_board *board);

/* Returns the bytes of a round of an array of `size` bytes. */
size_t dl_swap_chunk(size_t size);

/* Runs the operation after the arrival, before which round 0 was filled, and ends it. */
dl_status dl_swap_run(const dl_swap *swap);

#endif
