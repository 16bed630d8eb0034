/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What UCC can reduce, and how the rest is put in terms of that.  UCC answers what it
 * lacks with success and wrong numbers, so the table is ours: what is not in it is refused
 * before anything is sent.  Floats shorter than 32 bits travel as these and are rounded
 * once, a bool is a byte, the sum of complex numbers is that of their parts. */
#ifndef DISTLITE_PG_UCC_UCC_REDUCTION_H
#define DISTLITE_PG_UCC_UCC_REDUCTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/reduce.h"

typedef struct dl_ucc_reduction {
    int dtype; /* UCC's, as the operation */
    int op;
    size_t per_element; /* numbers of that dtype */
    size_t number_size;
    bool is_widened;
    bool is_averaged; /* by UCC; else AVG is a sum that has to be divided */
} dl_ucc_reduction;

/* DL_UNSUPPORTED names the pair. */
dl_status dl_ucc_reduction_of(dl_reduce_op op, dl_dtype dtype,
                              dl_ucc_reduction *reduction);

/* The same for arrays on a CUDA device, where nothing can be computed but by UCC: its own
 * kernels know 16-bit floats and averages; there are no factors and no 8-bit floats. */
dl_status dl_ucc_reduction_on_device(dl_reduce_op op, dl_dtype dtype,
                                     dl_ucc_reduction *reduction);

#endif
