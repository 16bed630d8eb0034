/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What an MPI backend is made of: for mpi_backend.c, which makes and ends it, and for the
 * files with its operations. */
#ifndef DISTLITE_PG_MPI_MPI_STATE_H
#define DISTLITE_PG_MPI_MPI_STATE_H

#include "pg/backend.h"
#include "pg/mpi/mpi_meeting.h"
#include "pg/mpi/mpi_spans.h"

typedef struct dl_mpi_backend {
    dl_backend base;
    /* fixed after init */
    dl_mpi_comm *comm;
    const dl_mpi_table *mpi;
    int rank;
    int size;
    /* the thread that is in an operation only */
    dl_mpi_meeting meeting;
    dl_mpi_spans inputs, outputs;
    dl_buffer staging; /* what reductions compute in */
    dl_buffer own;     /* an input without its gaps */
    int *counts;       /* four lists with an entry for each rank */
} dl_mpi_backend;

static inline dl_mpi_backend *
dl_mpi_self(dl_backend *backend)
{
    return (dl_mpi_backend *)(void *)backend;
}

/* A call of MPI's that waits for the others.  Fails as "MPI_Bcast failed: ..., in
 * broadcast #3 of group 0 on rank 1". */
dl_status dl_mpi_called(dl_mpi_backend *self, const dl_op_context *op, int result,
                        const char *call);

/* Each rank's `outgoing` to each other's `incoming`, of any size; they have met. */
dl_status dl_mpi_direct(dl_mpi_backend *self, const dl_mpi_span *outgoing,
                        const dl_mpi_span *incoming);

dl_status dl_mpi_all_reduce(dl_backend *backend, const dl_op_context *op,
                            const dl_all_reduce_args *args);
dl_status dl_mpi_reduce(dl_backend *backend, const dl_op_context *op,
                        const dl_reduce_args *args);
dl_status dl_mpi_reduce_scatter(dl_backend *backend, const dl_op_context *op,
                                const dl_reduce_scatter_args *args);
dl_status dl_mpi_broadcast(dl_backend *backend, const dl_op_context *op,
                           const dl_broadcast_args *args);
dl_status dl_mpi_barrier(dl_backend *backend, const dl_op_context *op);
dl_status dl_mpi_all_gather(dl_backend *backend, const dl_op_context *op,
                            const dl_all_gather_args *args);
dl_status dl_mpi_gather(dl_backend *backend, const dl_op_context *op,
                        const dl_gather_args *args);
dl_status dl_mpi_scatter(dl_backend *backend, const dl_op_context *op,
                         const dl_scatter_args *args);
dl_status dl_mpi_all_to_all(dl_backend *backend, const dl_op_context *op,
                            const dl_all_to_all_args *args);
dl_status dl_mpi_post(dl_mpi_comm *comm, dl_op_type op, const dl_message_args *args,
                      dl_deadline deadline, dl_work **work);

#endif
