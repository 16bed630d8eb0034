/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Translates the arguments of an operation into NCCL's calls.  Data that is only moved
 * is moved as bytes, so every dtype works; a reduction needs a dtype of NCCL, or one
 * that can be expressed in it (bool, complex).  All ranks must make the same calls, so
 * the choice of calls depends only on the sizes of the blocks, which all ranks know.
 * Blocks of equal size take one call; a rank whose blocks are not contiguous packs them
 * for it.  If the sizes differ, the collective is a group of simpler calls, one for
 * each rank. */
#ifndef DISTLITE_PG_NCCL_NCCL_LAUNCH_H
#define DISTLITE_PG_NCCL_NCCL_LAUNCH_H

#include "pg/call.h"
#include "pg/device/cuda_table.h"
#include "pg/nccl/nccl_table.h"
#include "tensor/reduce.h"
#include "tensor/tensor.h"

typedef struct dl_nccl_launch {
    const dl_nccl_table *nccl;
    const dl_cuda_table *cuda;
    void *comm;
    void *stream;
    int rank; /* in the communicator, like `size` and `peer` */
    int size;
    int peer; /* the other rank of a message */
    const dl_call *call;
    void *packed; /* made by dl_nccl_launch_begin(); NULL if blocks need no packing */
} dl_nccl_launch;

/* A dtype and a reduction in the terms of NCCL. */
typedef struct dl_nccl_reduction {
    int dtype;
    int op;
    size_t per_element; /* numbers of `dtype` in one element: 2 if it is complex */
    bool is_made;       /* `op` must be destroyed */
} dl_nccl_reduction;

/* Returns DL_UNSUPPORTED if the library cannot do the reduction. */
dl_status dl_nccl_reduction_check(const dl_nccl_table *nccl, dl_reduce_op op,
                                  dl_dtype dtype);

/* Maps a pair that was checked, except the factor of PREMUL_SUM. */
dl_nccl_reduction dl_nccl_reduction_of(dl_reduce_op op, dl_dtype dtype);

/* Checks, before anything is sent, that NCCL can carry out the operation on the device.
 * The text of DL_UNSUPPORTED has the reason; all ranks with such devices get the same
 * result. */
dl_status dl_nccl_launch_check(const dl_nccl_table *nccl, const dl_cuda_table *cuda,
                               int device, const dl_call *call);

/* Enqueues the packing of blocks that are not contiguous.  dl_nccl_launch_end() must
 * follow, also after a failure. */
dl_status dl_nccl_launch_begin(dl_nccl_launch *launch);

/* Makes the calls, between ncclGroupStart and ncclGroupEnd, and returns NCCL's
 * result. */
int dl_nccl_launch_op(const dl_nccl_launch *launch);

/* Called after ncclGroupEnd, once the calls are on the stream: enqueues the unpacking
 * of received blocks if `is_launched`, and frees the packed memory. */
dl_status dl_nccl_launch_end(dl_nccl_launch *launch, bool is_launched);

#endif
