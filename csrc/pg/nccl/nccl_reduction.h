/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A dtype and a reduction in NCCL's terms. */
#ifndef DISTLITE_PG_NCCL_NCCL_REDUCTION_H
#define DISTLITE_PG_NCCL_NCCL_REDUCTION_H

#include "pg/nccl/nccl_table.h"
#include "tensor/reduce.h"
#include "tensor/tensor.h"

typedef struct dl_nccl_reduction {
    int dtype;
    int op;
    size_t per_element; /* numbers of `dtype` in one element: 2 of a complex one */
    bool is_made;       /* `op` is to be given back */
} dl_nccl_reduction;

/* DL_UNSUPPORTED: the library has no way to do it. */
dl_status dl_nccl_reduction_check(const dl_nccl_table *nccl, dl_reduce_op op,
                                  dl_dtype dtype);

/* Of a pair that was checked; PREMUL_SUM is then to be scaled. */
dl_nccl_reduction dl_nccl_reduction_of(dl_reduce_op op, dl_dtype dtype);

/* Makes an operation of the communicator's own, to be ended; NCCL's result. */
int dl_nccl_reduction_scale(const dl_nccl_table *nccl, void *comm, double factor,
                            dl_nccl_reduction *reduction);
void dl_nccl_reduction_end(const dl_nccl_table *nccl, void *comm,
                           const dl_nccl_reduction *reduction);

#endif
