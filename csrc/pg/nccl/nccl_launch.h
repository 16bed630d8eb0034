/* SPDX-License-Identifier: BSD-3-Clause
 *
 * From the arguments of an operation to NCCL's calls.  What only moves, moves as bytes,
 * so every dtype does; a reduction needs a dtype of NCCL's, or one that can be put into
 * its terms (bool, complex).  Where blocks differ in size or lie apart, a collective is
 * a bundle of simpler calls, one for each rank. */
#ifndef DISTLITE_PG_NCCL_NCCL_LAUNCH_H
#define DISTLITE_PG_NCCL_NCCL_LAUNCH_H

#include "pg/arguments.h"
#include "pg/nccl/nccl_table.h"

typedef struct dl_nccl_launch {
    const dl_nccl_table *nccl;
    void *comm;
    void *stream;
    int rank; /* in the communicator, as the size and the peer */
    int size;
    int peer; /* of a message */
    const void *args;
} dl_nccl_launch;

/* Whether NCCL can carry it out, before anything is sent: DL_UNSUPPORTED says why not,
 * the same on all ranks. */
dl_status dl_nccl_launch_check(const dl_nccl_table *nccl, dl_op_type op,
                               const void *args);

/* Makes the calls, between ncclGroupStart and ncclGroupEnd.  NCCL's result. */
int dl_nccl_launch_op(dl_op_type op, const dl_nccl_launch *launch);

#endif
