/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the adapter of backends in C and the functions that it offers them share. */
#ifndef DISTLITE_PG_EXTENSION_EXTENSION_STATE_H
#define DISTLITE_PG_EXTENSION_EXTENSION_STATE_H

#include <distlite/backend.h>
#include <pthread.h>

#include "base/deadline.h"
#include "pg/backend.h"
#include "store/store.h"

typedef struct dl_extension {
    dl_backend base;
    const distlite_backend *table;
    void *state;
    dl_store *store;
    char *name;
    int rank;
    int size;
    uint32_t fork_generation;
    pthread_mutex_t lock; /* protects the cause, and the state against abort() */
    dl_error cause;       /* status DL_OK: not aborted */
} dl_extension;

/* A call, as the host's functions get it back. */
typedef struct dl_extension_call {
    distlite_call base;
    dl_extension *self;
    dl_deadline limit;
    const dl_guard *guard;
} dl_extension_call;

extern const distlite_host dl_extension_host;

/* Fails with the cause if the group was aborted. */
dl_status dl_extension_check_abort(dl_extension *self);

#endif
