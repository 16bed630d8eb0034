/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What reductions to arrays (reduce.c) and to blocks (reduce_scatter.c) share. */
#ifndef DISTLITE_PG_CPU_HOSTS_REDUCTION_H
#define DISTLITE_PG_CPU_HOSTS_REDUCTION_H

#include "pg/cpu/hosts/leaders.h"

/* How `count` elements are reduced between the hosts. */
typedef struct dl_reduction {
    dl_leaders_fn *run;
    /* Partial results would have to be rounded between the levels, or between the leaders
     * that they pass: all reduce in float32 from the first addition on, so that there is
     * one rounding, at the end, and the same on all ranks. */
    bool is_widened;
} dl_reduction;

dl_reduction dl_reduction_of(const dl_hosts *hosts, dl_op_type op, dl_dtype dtype,
                             size_t count);

/* Returns the leaders' part for the call's tensor, which is contiguous. */
dl_leaders dl_reduction_leaders(dl_hosts *hosts, const dl_call *call, int root);

/* Returns the call that all levels make: PREMUL_SUM's factors have been multiplied into
 * the tensor by now. */
dl_call dl_reduction_call(const dl_tensor *tensor, dl_reduce_op op);

/* Reduces the arrays of this host to its leader's.  An average is a sum here; the leaders
 * divide at the end. */
dl_status dl_reduction_within(dl_hosts *hosts, const dl_op_context *phase,
                              const dl_call *call);

/* Makes a contiguous array of `dtype` in this rank's scratch memory. */
dl_status dl_reduction_row(dl_hosts *hosts, size_t count, dl_dtype dtype,
                           dl_tensor *row);

/* Copies the tensor to `target`, contiguous, and multiplied for PREMUL_SUM. */
void dl_reduction_copy(uint8_t *target, const dl_tensor *tensor, const dl_call *call);

#endif
