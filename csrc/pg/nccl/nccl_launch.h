/* SPDX-License-Identifier: BSD-3-Clause
 *
 * From the arguments of an operation to NCCL's calls.  What only moves, moves as bytes,
 * so every dtype does; a reduction needs a dtype of NCCL's, or one that can be put into
 * its terms (bool, complex).  All ranks must make the same calls, so the choice between
 * calls follows from what all ranks know, the sizes of the blocks: where these differ, a
 * collective is a bundle of simpler calls, one for each rank.  Blocks of one size go in
 * one call; a rank whose own blocks lie apart has them packed for it. */
#ifndef DISTLITE_PG_NCCL_NCCL_LAUNCH_H
#define DISTLITE_PG_NCCL_NCCL_LAUNCH_H

#include "pg/arguments.h"
#include "pg/cuda_table.h"
#include "pg/nccl/nccl_table.h"

typedef struct dl_nccl_launch {
    const dl_nccl_table *nccl;
    const dl_cuda_table *cuda;
    void *comm;
    void *stream;
    int rank; /* in the communicator, as the size and the peer */
    int size;
    int peer; /* of a message */
    dl_op_type op;
    const void *args;
    void *packed; /* dl_nccl_launch_begin()'s; NULL: the blocks follow each other */
} dl_nccl_launch;

/* Whether NCCL can carry it out on the device, before anything is sent: DL_UNSUPPORTED
 * says why not, the same on all ranks with such devices. */
dl_status dl_nccl_launch_check(const dl_nccl_table *nccl, const dl_cuda_table *cuda,
                               int device, dl_op_type op, const void *args);

/* Packs blocks that lie apart, in the order of the stream.  To be ended in any case. */
dl_status dl_nccl_launch_begin(dl_nccl_launch *launch);

/* Makes the calls, between ncclGroupStart and ncclGroupEnd.  NCCL's result. */
int dl_nccl_launch_op(const dl_nccl_launch *launch);

/* After ncclGroupEnd, once the calls are on the stream: unpacks what has come, if
 * `is_launched`. */
dl_status dl_nccl_launch_end(dl_nccl_launch *launch, bool is_launched);

#endif
