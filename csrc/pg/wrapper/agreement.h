/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether all ranks are about to do the same: one roll call per collective, and the words
 * for ranks that differ and for ranks that do not come. */
#ifndef DISTLITE_PG_WRAPPER_AGREEMENT_H
#define DISTLITE_PG_WRAPPER_AGREEMENT_H

#include <pthread.h>

#include "pg/backend.h"
#include "pg/roll_call.h"

typedef struct dl_agreement_options {
    dl_store *store; /* these are borrowed for the agreement's life */
    const char *topic;
    const char *group_name;
    /* Asked who is gone, as a dl_backend is; NULL: nobody knows. */
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

/* Returns once all ranks have said that they are about to do the same.  DL_MISMATCH,
 * DL_TIMEOUT and DL_PEER_LOST name ranks, hosts, calls and lines. */
dl_status dl_agreement_reach(dl_agreement *self, const dl_op_context *op,
                             const void *args);

/* Ends the wait for others, from any thread. */
void dl_agreement_abort(dl_agreement *self, const dl_error *cause);

#endif
