/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions with a dl_reducer, over any backend: the ranks exchange what is to be
 * combined by the backend's all_gather and all_to_all, and combine it here, in the order
 * of the ranks.  Small arrays go to every rank whole.  Of larger ones each rank combines
 * one share, so that its work and memory do not grow with the number of ranks.
 *
 * An operation takes a sequence number for each exchange, as if each was an operation of
 * its own with the same fingerprint. */
#ifndef DISTLITE_PG_FUNCTION_REDUCTION_H
#define DISTLITE_PG_FUNCTION_REDUCTION_H

#include <stdatomic.h>

#include "pg/backend.h"

typedef struct dl_function_reduction {
    dl_backend *backend;
    const dl_op_context *context;
    _Atomic uint64_t *sequence; /* the group's */
    int rank;
    int size;
    /* Set if the reducer has failed on some rank: all ranks return the same error,
     * their arrays are unchanged, and they may go on to use the group. */
    bool has_failed_alike;
} dl_function_reduction;

/* Runs a reduction that has a reducer.  Called with the turn held. */
dl_status dl_function_reduction_run(dl_function_reduction *self, const dl_call *call);

#endif
