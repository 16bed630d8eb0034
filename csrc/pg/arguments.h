/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One plain struct per collective: what the caller asked for, already checked where that
 * is possible without looking at other ranks. */
#ifndef DISTLITE_PG_ARGUMENTS_H
#define DISTLITE_PG_ARGUMENTS_H

#include "tensor/reduce.h"
#include "tensor/tensor.h"

typedef struct dl_all_reduce_args {
    dl_tensor tensor; /* in place */
    dl_reduce_op op;
} dl_all_reduce_args;

typedef struct dl_broadcast_args {
    dl_tensor tensor; /* read on the root, written elsewhere */
    int root;         /* rank in the group */
} dl_broadcast_args;

#endif
