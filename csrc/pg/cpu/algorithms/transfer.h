/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What an exchange moves, and its state, for the files that carry it out (exchange.h). */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_TRANSFER_H
#define DISTLITE_PG_CPU_ALGORITHMS_TRANSFER_H

#include "pg/cpu/shm/board.h"

typedef struct dl_exchange dl_exchange;
typedef struct dl_transfer dl_transfer;

typedef enum dl_flow {
    DL_AMONG_ALL = 0,
    DL_FROM_ROOT,
    DL_TO_ROOT,
} dl_flow;

/* Where the ranks put their blocks. */
typedef enum dl_place {
    DL_IN_SLOT = 0, /* or elsewhere, as each rank notes on its line */
    DL_EAGER,
    DL_IN_PLACE, /* no rank has any in its slot */
} dl_place;

/* Which blocks one operation moves; borrowed for the call. */
struct dl_transfer {
    int rank; /* this rank */
    dl_flow flow;
    int root;
    const dl_tensor *inputs; /* by destination, or one for all */
    int input_count;
    const dl_tensor *outputs; /* by source, or one for all */
    int output_count;
    /* This rank's block for itself.  Nothing is copied if `own_output` is NULL or has
     * the data of `own_input`. */
    const dl_tensor *own_input;
    const dl_tensor *own_output;
    bool is_shared; /* each rank has one block, for all others */
    /* All ranks know that all blocks have one size, except that those of a rank for
     * itself may have none. */
    bool is_even;
    /* Returns the bytes of the block that `source` has for `destination`.  May return 0
     * for a rank's block for itself, unless that has a place among the others.  With
     * `expected`, `source` is this rank only. */
    size_t (*size)(const dl_transfer *, int source, int destination);
    /* Where sizes are uneven, returns the bytes that this rank expects from `source`;
     * else NULL. */
    size_t (*expected)(const dl_transfer *, int source);
    /* Factor of PREMUL_SUM, by which blocks are multiplied as they are sent; or
     * NULL. */
    const double *factor;
    /* Processes all incoming blocks of a round; NULL: they are copied to their
     * outputs. */
    void (*drain)(dl_exchange *, uint64_t round);
    const void *context; /* for `drain` */
};

/* One block of `rank`: in each slot of it, or in its eager data, it begins at byte
 * `offset`, and is cut into pieces of `piece` bytes. */
typedef struct dl_stream {
    int rank;
    int index; /* among the blocks of `rank` */
    size_t offset;
    size_t piece;
    size_t size; /* of the block */
    const dl_tensor *tensor;
    uint8_t *data; /* where the block is, if not in slots; else NULL */
} dl_stream;

/* Made once for a board; used by the thread that is in an operation. */
struct dl_exchange {
    dl_board *board;
    size_t cached_limit; /* dl_copy_cached_limit() */
    dl_stream *outgoing;
    dl_stream *incoming;
    dl_slot_writer *writers; /* by receiver, for blocks that go to one */
    /* of the current operation */
    const dl_transfer *transfer;
    int outgoing_count;
    int incoming_count;
    dl_place place;
    bool is_even;   /* as far as known by now, all blocks have `block` bytes */
    bool skips_own; /* then: a rank's block for itself has no place among the others */
    size_t block;
    bool is_sharing; /* this rank's blocks stay in shared memory */
    int sharers;     /* number of ranks whose blocks do */
    bool is_large;   /* arrays exceed the caches, and outputs are written past them */
    size_t header;   /* bytes of a slot before the blocks */
    uint64_t rounds;
};

#endif
