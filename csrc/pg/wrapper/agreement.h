/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Checks that all ranks are about to run the same collective: one roll call per
 * collective, in which each rank states its call, and an error text for ranks that
 * differ or do not come. */
#ifndef DISTLITE_PG_WRAPPER_AGREEMENT_H
#define DISTLITE_PG_WRAPPER_AGREEMENT_H

#include <pthread.h>

#include "pg/agree/roll_call.h"
#include "pg/backend.h"

typedef struct dl_agreement_options {
    dl_store *store; /* borrowed for the agreement's life, like the two names */
    const char *topic;
    const char *group_name;
    /* Fails when `rank` cannot take part any more, as dl_backend_ops.watch. NULL if
     * that is never known. */
    dl_status (*watch)(void *context, int rank);
    void *context;
    int rank;
    int size;
} dl_agreement_options;

typedef struct dl_agreement {
    /* fixed after init */
    dl_agreement_options options;
    dl_roll_call roll;
    /* any thread */
    atomic_bool is_aborted;
    pthread_mutex_t lock;
    dl_error abort_cause; /* guarded by lock */
} dl_agreement;

void dl_agreement_init(dl_agreement *self, const dl_agreement_options *options);
void dl_agreement_fini(dl_agreement *self);

/* Returns DL_OK once all ranks have stated the same call.  The texts of DL_MISMATCH,
 * DL_TIMEOUT and DL_PEER_LOST name ranks, hosts, calls and lines.  Called with the
 * group's turn. */
dl_status dl_agreement_reach(dl_agreement *self, const dl_op_context *op,
                             const dl_call *call);

/* Ends the wait for other ranks, which then fails with `cause`; any thread. */
void dl_agreement_abort(dl_agreement *self, const dl_error *cause);

#endif
