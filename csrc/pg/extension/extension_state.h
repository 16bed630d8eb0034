/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Types that the adapter of backends in C shares with the functions that it provides to
 * them. */
#ifndef DISTLITE_PG_EXTENSION_EXTENSION_STATE_H
#define DISTLITE_PG_EXTENSION_EXTENSION_STATE_H

#include <distlite/backend.h>
#include <pthread.h>

#include "base/deadline.h"
#include "pg/backend.h"
#include "store/store.h"

typedef struct dl_extension_messages dl_extension_messages; /* extension_messages.h */

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
    dl_extension_messages *messages;
} dl_extension;

/* A call, as the host's functions get it back. */
typedef struct dl_extension_call {
    distlite_call base;
    dl_extension *self;
    dl_deadline limit;
    const dl_guard *guard;
} dl_extension_call;

extern const distlite_host dl_extension_host;

/* Makes the call of a function of the table. */
dl_extension_call dl_extension_call_begin(dl_extension *self, const dl_op_context *op);

/* Empties the thread's last error before a function of the table is called, to see
 * whether that sets it. */
void dl_extension_forget_error(void);

/* Turns what a function of the table returned into a status, whose text begins with
 * `what`, rank and backend. */
dl_status dl_extension_result(const dl_extension *self, const char *what, int result);

/* Fails with the cause if the group was aborted. */
dl_status dl_extension_check_abort(dl_extension *self);

#endif
