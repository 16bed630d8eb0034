/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A UCC library and context, with a count of references: groups that are made out of
 * one another are teams of one context.  UCC still knows an operation that was given
 * up, and may write to its memory whenever it is progressed.  A context with such an
 * operation is disabled: it is never progressed again and never freed. */
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
    /* a reference, for the CPU backends of further groups */
    dl_backend_origin *cpu_origin;
    dl_ucc_exchange exchange;
    /* a rank is lost: ranks that leave do not wait for it */
    atomic_bool has_lost_rank;
    /* guarded by lock; the flag may be read without it */
    pthread_mutex_t lock;
    atomic_bool is_disabled;
    dl_error cause;
} dl_ucc_context;

/* Creates a context.  Called by all ranks of `options`, over the same store; `cpu` is a
 * backend of the same ranks, and is only used during the call. */
dl_status dl_ucc_context_new(const dl_backend_options *options, dl_backend *cpu,
                             dl_deadline deadline, dl_ucc_context **context);

static inline dl_ucc_context *
dl_ucc_context_of(dl_backend_origin *origin)
{
    return (dl_ucc_context *)(void *)origin;
}

/* Returns DL_OK, or fails with the reason why the context can no longer be used. */
dl_status dl_ucc_context_admit(dl_ucc_context *context);

/* Marks the context as disabled.  Later calls of all its groups fail with `cause`. */
void dl_ucc_context_disable(dl_ucc_context *context, const char *group_name,
                            const dl_error *cause);

/* Returns DL_OK unless `status` is a failure; then fails with DL_BACKEND and UCC's own
 * text. */
dl_status dl_ucc_check(const dl_ucc_table *ucc, int status, const char *what);

/* How long ranks that leave wait for each other in all. */
#define DL_UCC_GRACE (5 * DL_SECOND)

/* Key in the context's store: a rank has disabled the context, and will not leave it
 * together with the others. */
#define DL_UCC_DISABLED_KEY DL_LITERAL("ucc/disabled")

#endif
