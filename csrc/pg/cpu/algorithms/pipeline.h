/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A pipeline passes whole arrays through the slots of the ranks, in rounds of a part
 * each: while some ranks still read a round, others write the next one.  Each rank
 * computes its result from the arrays of all ranks that it needs.  That takes one
 * arrival in place of the three of algorithms in which each rank computes a share and
 * copies the shares of the others, but every rank reads as many arrays as it needs. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_PIPELINE_H
#define DISTLITE_PG_CPU_ALGORITHMS_PIPELINE_H

#include "pg/cpu/shm/board.h"

typedef struct dl_pipeline {
    dl_board *board;
    uint64_t rounds;
    /* Writes this rank's slot, and reads those of the others. */
    void (*fill)(const void *context, uint64_t round);
    void (*drain)(const void *context, uint64_t round);
    const void *context;
} dl_pipeline;

/* Returns the bytes of a round of an array of `size` bytes; never 0. */
size_t dl_pipeline_chunk(const dl_board *board, size_t size);

/* Runs the operation after the arrival, before which round 0 was filled, and ends it.
 * */
dl_status dl_pipeline_run(const dl_pipeline *pipeline);

#endif
