/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of a UCC backend, shared by the files of this folder: the context, which
 * groups that are made out of one another share, the backend with its team and the CPU
 * backend beside it, and the exchange of bytes that both are made with.
 *
 * Before each collective the ranks meet over the CPU backend.  That compares what the
 * ranks call, waits with a deadline, and notices dead ranks; after UCC has begun an
 * operation it is too late for that, because UCC cannot cancel.  So UCC gets only
 * operations that all ranks have begun alike. */
#ifndef DISTLITE_PG_UCC_UCC_STATE_H
#define DISTLITE_PG_UCC_UCC_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "pg/paired_backend.h"
#include "pg/ucc/ucc_layout.h"

/* The exchange of bytes that UCC needs before its own network is up (its "out-of-band"
 * all-gather), over messages of a CPU backend.  UCC calls it from the thread that
 * creates, progresses or destroys a context or team, so that thread sets the deadline up
 * to which it may block.  The first error is kept here, because UCC passes on only a
 * number. */
typedef struct dl_ucc_exchange {
    dl_backend *cpu;  /* borrowed */
    const char *what; /* for errors */
    int rank;
    int size;
    dl_deadline deadline; /* only for the one thread that is in UCC for this exchange */
    dl_error error;       /* the first failure; DL_OK: none so far */
} dl_ucc_exchange;

/* Returns `status` of a call of UCC, or fails with the error of the exchange, if there
 * was one: it says more than UCC's number. */
dl_status dl_ucc_exchange_explain(const dl_ucc_exchange *exchange, dl_status status);

/* Returns the callbacks for UCC.  `exchange` must stay in place for as long as UCC has
 * them. */
dl_ucc_oob dl_ucc_exchange_oob(dl_ucc_exchange *exchange);

/* A UCC library and context, with a count of references: groups that are made out of
 * one another are teams of one context.  UCC still knows an operation that was given
 * up, and may write to its memory whenever a thread drives it, for whichever group.  A
 * context with such an operation is disabled: it is never driven again and never
 * freed. */
typedef struct dl_ucc_context {
    dl_backend_origin base;
    /* fixed after init */
    const dl_ucc_table *ucc;
    void *library;
    void *handle;
    uint32_t fork_generation;
    /* Of the same ranks, which leave the context when their groups are gone.  Owned; its
     * origin is that of the CPU backends of further groups. */
    dl_backend *cpu;
    dl_ucc_exchange exchange;
    /* a rank is lost: ranks that leave do not wait for it */
    atomic_bool has_lost_rank;
    /* held for reading by threads that drive UCC */
    pthread_rwlock_t drivers;
    /* guarded by lock; the flag may be read without it */
    pthread_mutex_t lock;
    atomic_bool is_disabled;
    dl_error cause;
} dl_ucc_context;

/* Creates a context.  Called by all ranks of `options`; `cpu` is a backend of the same
 * ranks, and is only used during the call. */
dl_status dl_ucc_context_new(const dl_backend_options *options, dl_backend *cpu,
                             dl_deadline deadline, dl_ucc_context **context);

static inline dl_ucc_context *
dl_ucc_context_of(dl_backend_origin *origin)
{
    return (dl_ucc_context *)(void *)origin;
}

/* Returns DL_OK, or fails with the reason why the context can no longer be used. */
dl_status dl_ucc_context_admit(dl_ucc_context *context);

/* Begins a few calls that make UCC move data, or fails like dl_ucc_context_admit().  On
 * success dl_ucc_context_pause() must follow soon. */
dl_status dl_ucc_context_drive(dl_ucc_context *context);
void dl_ucc_context_pause(dl_ucc_context *context);

/* Marks the context as disabled, and returns once no thread drives it.  Later calls of
 * all its groups fail with `cause`, and the other ranks do not wait for this one when they
 * leave. */
void dl_ucc_context_disable(dl_ucc_context *context, const char *group_name,
                            const dl_error *cause);

/* Returns DL_OK unless `status` is a failure; then fails with DL_BACKEND and UCC's own
 * text. */
dl_status dl_ucc_check(const dl_ucc_table *ucc, int status, const char *what);

/* How long ranks that leave a team or a context wait for each other. */
#define DL_UCC_GRACE (5 * DL_SECOND)

typedef struct dl_ucc_backend {
    dl_paired_backend pair;
    /* fixed after init */
    dl_ucc_context *context; /* a reference; NULL: a group of one rank */
    dl_ucc_exchange exchange;
    void *team;
    char *group_name;
    char *label; /* "group 0, rank 1 of 4 on node7" */
    int rank;
    int size;
    uint32_t fork_generation;
    /* only for the operation that has its turn */
    dl_buffer raw, input, output;
    uint64_t *lengths; /* counts and offsets of inputs, then of outputs */
} dl_ucc_backend;

static inline dl_ucc_backend *
dl_ucc_self(dl_backend *backend)
{
    return (dl_ucc_backend *)(void *)backend;
}

/* Returns once all ranks have called the same operation. */
dl_status dl_ucc_rendezvous(dl_ucc_backend *self, const dl_op_context *op);

/* Like dl_ucc_rendezvous(), for operations whose fingerprints do not fix the sizes: compares
 * what each rank sends to the others with what these expect.  Both sides have a block
 * for each rank. */
dl_status dl_ucc_compare_sizes(dl_ucc_backend *self, const dl_op_context *op,
                               const dl_ucc_layout *from, const dl_ucc_layout *to);

/* Carries out one collective.  `bytes` is how many bytes this rank sends and
 * receives. */
dl_status dl_ucc_run(dl_ucc_backend *self, const dl_op_context *op, dl_ucc_args *args,
                     size_t bytes);

/* How a wait spends the time between looks at UCC. */
typedef struct dl_ucc_patience {
    int64_t awake_until;
    int64_t next_slice;
    int rounds;            /* slices of time that have passed */
    int slices_after_loss; /* slices in which a rank was known to be gone */
} dl_ucc_patience;

/* Begins a wait for an operation of that many bytes. */
void dl_ucc_patience_init(dl_ucc_patience *patience, size_t bytes);

/* Yields or sleeps once.  Fails with DL_INTERRUPTED. */
dl_status dl_ucc_patience_rest(dl_ucc_patience *patience);

/* Carries out a collective: by one of the functions below, in a group of several ranks.
 * The others are up to the CPU backend beside UCC: scans, which UCC lacks; gathering and
 * scattering, and unequal blocks other than those of an all_to_all, for which UCC has forms
 * of its own that not all transports support; and all of a group of one rank. */
dl_collective_fn dl_ucc_collective;
dl_collective_fn dl_ucc_all_reduce, dl_ucc_broadcast, dl_ucc_barrier, dl_ucc_reduce;
dl_collective_fn dl_ucc_all_gather, dl_ucc_reduce_scatter, dl_ucc_all_to_all;

#endif
