/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Maps a dtype and a reduction to those of NCCL. */
#ifndef DISTLITE_PG_NCCL_NCCL_REDUCTION_H
#define DISTLITE_PG_NCCL_NCCL_REDUCTION_H

#include "pg/nccl/nccl_table.h"
#include "tensor/reduce.h"
#include "tensor/tensor.h"

typedef struct dl_nccl_reduction {
    int dtype;
    int op;
    size_t per_element; /* numbers of `dtype` in one element: 2 if it is complex */
    bool is_made;       /* `op` must be destroyed */
} dl_nccl_reduction;

/* Returns DL_UNSUPPORTED if the library cannot do the reduction. */
dl_status dl_nccl_reduction_check(const dl_nccl_table *nccl, dl_reduce_op op,
                                  dl_dtype dtype);

/* Maps a pair that was checked; PREMUL_SUM then needs dl_nccl_reduction_scale(). */
dl_nccl_reduction dl_nccl_reduction_of(dl_reduce_op op, dl_dtype dtype);

/* Makes a custom operation of the communicator, which dl_nccl_reduction_end() destroys.
 * Returns NCCL's result. */
int dl_nccl_reduction_scale(const dl_nccl_table *nccl, void *comm, double factor,
                            dl_nccl_reduction *reduction);
void dl_nccl_reduction_end(const dl_nccl_table *nccl, void *comm,
                           const dl_nccl_reduction *reduction);

#endif
