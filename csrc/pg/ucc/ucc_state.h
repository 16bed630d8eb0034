/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of a UCC backend, shared by the files of this folder: its team, the CPU
 * backend beside it, and the rows in which elements are contiguous for UCC. */
#ifndef DISTLITE_PG_UCC_UCC_STATE_H
#define DISTLITE_PG_UCC_UCC_STATE_H

#include "pg/ucc/ucc_context.h"
#include "pg/ucc/ucc_memory.h"

typedef struct dl_ucc_backend {
    dl_backend base;
    /* fixed after init */
    dl_ucc_context *context; /* a reference; NULL: a group of one rank */
    dl_ucc_exchange exchange;
    void *team;
    dl_backend *cpu; /* meets before each collective; carries the messages */
    char *group_name;
    char *label; /* "group 0, rank 1 of 4 on node7" */
    int rank;
    int size;
    uint32_t fork_generation;
    dl_ucc_memory memory;     /* that all arrays are in */
    dl_backend_ops on_device; /* operations, if the arrays are on a device */
    /* only for the operation that has its turn */
    dl_ucc_row raw;
    dl_ucc_row input;
    dl_ucc_row output;
    uint64_t *lengths;      /* counts and offsets of inputs, then of outputs */
    dl_work *watch_receive; /* receive that fails when the next rank ends; or NULL */
    char watch_byte;
    /* guarded by lock; the flag may be read without it */
    pthread_mutex_t lock;
    atomic_bool is_aborted;
    dl_error cause;
} dl_ucc_backend;

static inline dl_ucc_backend *
dl_ucc_self(dl_backend *backend)
{
    return (dl_ucc_backend *)(void *)backend;
}

/* Returns DL_OK, or fails with the reason why operations have to end. */
dl_status dl_ucc_admit(dl_ucc_backend *self);

/* Carries out one collective.  `bytes` is how many bytes this rank sends and
 * receives. */
dl_status dl_ucc_run(dl_ucc_backend *self, const dl_op_context *op, dl_ucc_args *args,
                     size_t bytes);

/* Publishes the thread's last error for ranks of other hosts, which look for it in the
 * store. */
void dl_ucc_publish(dl_ucc_backend *self, const dl_op_context *op);

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

/* The table of operations (ucc_collectives.c, ucc_reductions.c). */
dl_status dl_ucc_all_reduce(dl_backend *backend, const dl_op_context *op,
                            const dl_all_reduce_args *args);
dl_status dl_ucc_broadcast(dl_backend *backend, const dl_op_context *op,
                           const dl_broadcast_args *args);
dl_status dl_ucc_barrier(dl_backend *backend, const dl_op_context *op);
dl_status dl_ucc_reduce(dl_backend *backend, const dl_op_context *op,
                        const dl_reduce_args *args);
dl_status dl_ucc_all_gather(dl_backend *backend, const dl_op_context *op,
                            const dl_all_gather_args *args);
dl_status dl_ucc_gather(dl_backend *backend, const dl_op_context *op,
                        const dl_gather_args *args);
dl_status dl_ucc_scatter(dl_backend *backend, const dl_op_context *op,
                         const dl_scatter_args *args);
dl_status dl_ucc_reduce_scatter(dl_backend *backend, const dl_op_context *op,
                                const dl_reduce_scatter_args *args);
dl_status dl_ucc_all_to_all(dl_backend *backend, const dl_op_context *op,
                            const dl_all_to_all_args *args);

#endif
