/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of an MPI backend and the prototypes of its operations: for mpi_backend.c,
 * which creates and frees it, and for the files that implement the operations. */
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
    /* used only by the thread that runs an operation */
    dl_mpi_meeting meeting;
    dl_mpi_spans inputs, outputs;
    dl_buffer staging; /* memory that reductions compute in */
    dl_buffer own;     /* scratch memory: the contiguous copy of an input, or inboxes */
    int *counts;       /* two lists of counts and two of offsets, by rank */
} dl_mpi_backend;

static inline dl_mpi_backend *
dl_mpi_self(dl_backend *backend)
{
    return (dl_mpi_backend *)(void *)backend;
}

/* Turns the result of one of MPI's blocking functions into a status.  A failure reads
 * "broadcast #3 in group 0 on rank 1: MPI_Bcast failed: ...". */
dl_status dl_mpi_called(dl_mpi_backend *self, const dl_op_context *op, int result,
                        const char *call);

/* Sends `outgoing[rank]` to each rank and receives `incoming[rank]` from each, whatever
 * their sizes.  All ranks must have met before (mpi_meeting.h). */
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
