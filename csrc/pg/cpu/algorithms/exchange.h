/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks on their way through a board: each rank puts what it has for others side by
 * side on its line, if all of it fits there, into its pocket, or into its slot, and takes
 * what is for it out of the others'.  Blocks too large for a slot are cut into as many pieces as there
 * are rounds; a rank fills its slot for the next round before it empties those of this
 * one, so that copying in and copying out overlap.
 * On lines and in pockets, where one rank only gives or only takes, the others do not wait
 * for each other.
 * What would go through slots and lies in shared memory already stays where it is
 * (exchange_shared.h).
 * Where ranks know only the sizes of their own blocks, these come first in the slots, and
 * everybody compares what one sends with what the other expects. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_H
#define DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_H

#include "pg/cpu/shm/board.h"

typedef struct dl_exchange dl_exchange;
typedef struct dl_transfer dl_transfer;

typedef enum dl_flow {
    DL_AMONG_ALL = 0,
    DL_FROM_ROOT,
    DL_TO_ROOT,
} dl_flow;

/* Where the ranks' blocks lie. */
typedef enum dl_place {
    DL_IN_SLOT = 0, /* or where they are, as each rank says */
    DL_IN_POCKET,
    DL_ON_LINE,
    DL_IN_PLACE, /* where they are, on all ranks */
} dl_place;

/* What goes where in one operation; borrowed for its call. */
struct dl_transfer {
    int rank; /* this one */
    dl_flow flow;
    int root;
    const dl_tensor *inputs; /* by destination, or one for all of them */
    int input_count;
    const dl_tensor *outputs; /* by source, or one */
    int output_count;
    /* What this rank keeps: NULL, or the same view: nothing to copy. */
    const dl_tensor *own_input;
    const dl_tensor *own_output;
    bool is_shared; /* a rank's one block is for all others */
    /* Bytes that `source` has for `destination`, 0 if they are one unless their place is
     * wanted.  Where sizes are uneven: of this rank as source. */
    size_t (*size)(const dl_transfer *, int source, int destination);
    /* Where they are: bytes that this rank expects from `source`; else NULL. */
    size_t (*expected)(const dl_transfer *, int source);
    /* Multiplies what is sent; NULL: by nothing.  Of PREMUL_SUM. */
    const double *factor;
    /* In place of copying all incoming blocks of a round to their outputs; NULL: that. */
    void (*drain)(dl_exchange *, uint64_t round);
    const void *context; /* of `drain` */
};

/* One block's way: in slots of `rank`, `offset` bytes from their start, cut into pieces
 * of `piece` bytes. */
typedef struct dl_stream {
    int rank;
    int index; /* among the blocks of `rank` */
    size_t offset;
    size_t piece;
    size_t size; /* of the block */
    const dl_tensor *tensor;
    uint8_t *data; /* the block itself, if in shared memory; else NULL */
} dl_stream;

/* Made once for a board, used by the thread that is in an operation. */
struct dl_exchange {
    dl_board *board;
    dl_stream *outgoing;
    dl_stream *incoming;
    uint8_t **sources; /* room for one pointer of each rank; for `drain` */
    /* of the operation */
    const dl_transfer *transfer;
    int outgoing_count;
    int incoming_count;
    dl_place place;
    bool is_sharing; /* this rank's blocks stay where they are */
    int sharers;     /* ranks whose do */
    bool is_large;   /* more than stays in a cache: outputs are written past it */
    size_t header;   /* bytes of a slot before its blocks */
    uint64_t rounds;
};

dl_status dl_exchange_init(dl_exchange *exchange, dl_board *board);
void dl_exchange_fini(dl_exchange *exchange);

dl_status dl_exchange_run(dl_exchange *exchange, const dl_op_context *op,
                          const dl_transfer *transfer);

/* For `drain`: the stream's part of this round. */
uint8_t *dl_exchange_part(const dl_exchange *exchange, const dl_stream *stream,
                          uint64_t round);

/* Bytes of the stream's block in this round, from round * piece on. */
size_t dl_stream_part(const dl_stream *stream, uint64_t round);

#endif
