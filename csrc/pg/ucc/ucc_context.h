/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A UCC library and context, counted: groups made out of one another are teams of one
 * context.  An operation that somebody gave up is still known to UCC, which may write to
 * its memory whenever it is asked to go on: a context that has such a one is spoilt,
 * never asked again and never freed. */
#ifndef DISTLITE_PG_UCC_UCC_CONTEXT_H
#define DISTLITE_PG_UCC_UCC_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pg/backend.h"
#include "pg/ucc/ucc_exchange.h"

typedef struct dl_ucc_context {
    dl_backend_origin base;
    /* fixed after init */
    const dl_ucc_table *ucc;
    void *library;
    void *handle;
    uint32_t fork_generation;
    dl_backend_origin
        *cpu_origin; /* a reference, for the CPU backends of more groups */
    dl_ucc_exchange exchange;
    atomic_bool is_bereaved; /* a rank is lost: those that leave do not wait for it */
    /* guarded by lock, where the flag can be read without */
    pthread_mutex_t lock;
    atomic_bool is_spoilt;
    dl_error cause;
} dl_ucc_context;

/* All ranks of `options` call it, over the same store; `cpu` is of the same ranks. */
dl_status dl_ucc_context_new(const dl_backend_options *options, dl_backend *cpu,
                             dl_deadline deadline, dl_ucc_context **context);

static inline dl_ucc_context *
dl_ucc_context_of(dl_backend_origin *origin)
{
    return (dl_ucc_context *)(void *)origin;
}

/* DL_OK, or why it can no longer be used. */
dl_status dl_ucc_context_admit(dl_ucc_context *context);

/* `cause`: what later calls of all its groups are told. */
void dl_ucc_context_spoil(dl_ucc_context *context, const char *group_name,
                          const dl_error *cause);

/* DL_OK for a status that is no failure; else DL_BACKEND, with UCC's own word for it. */
dl_status dl_ucc_check(const dl_ucc_table *ucc, int status, const char *what);

/* How long the leaving wait for each other, in all. */
#define DL_UCC_GRACE (5 * DL_SECOND)

/* In the context's store: a rank has spoilt it, and will not meet the others again. */
#define DL_UCC_SPOILT_KEY DL_LITERAL("ucc/spoilt")

#endif
