/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of an MPI backend and the prototypes of its operations: for mpi_backend.c,
 * which creates and frees it, and for the files that implement the operations. */
#ifndef DISTLITE_PG_MPI_MPI_STATE_H
#define DISTLITE_PG_MPI_MPI_STATE_H

#include "base/buffer.h"
#include "pg/backend.h"
#include "pg/mpi/mpi_meeting.h"
#include "tensor/tensor.h"

/* Blocks in the layout that MPI needs: each contiguous and, on request, each directly
 * behind the one before.  Other blocks go through a copy. */
typedef struct dl_mpi_span {
    char *data;
    size_t size;
} dl_mpi_span;

typedef struct dl_mpi_spans {
    dl_mpi_span *spans; /* by rank */
    int count;
    size_t size; /* of all blocks */
    size_t largest;
    bool is_even;
    dl_buffer copy;
} dl_mpi_spans;

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

dl_status dl_mpi_spans_init(dl_mpi_spans *spans, int count);
void dl_mpi_spans_fini(dl_mpi_spans *spans);

/* Makes all blocks empty, for a caller that then sets the block of one rank. */
void dl_mpi_spans_clear(dl_mpi_spans *spans);

/* Sets the sizes only. */
void dl_mpi_spans_measure(dl_mpi_spans *spans, const dl_tensor *blocks);

typedef enum dl_mpi_layout {
    DL_MPI_ANYWHERE,
    DL_MPI_CONTIGUOUS,
    DL_MPI_COPIED, /* even if they are contiguous */
} dl_mpi_layout;

/* Sets where the blocks are, or will be after dl_mpi_spans_read(); copies nothing. */
dl_status dl_mpi_spans_place(dl_mpi_spans *spans, const dl_tensor *blocks,
                             dl_mpi_layout lie);

/* Copy blocks that do not stay in place into the copy, and back. */
void dl_mpi_spans_read(const dl_mpi_spans *spans, const dl_tensor *blocks);
void dl_mpi_spans_write(const dl_mpi_spans *spans, const dl_tensor *blocks);

/* Meets the other ranks without a contribution, and commits to a blocking function of
 * MPI (dl_mpi_meeting_commit()). */
dl_status dl_mpi_meet_empty(dl_mpi_backend *self, const dl_op_context *op);

/* Turns the result of one of MPI's blocking functions into a status.  A failure reads
 * "broadcast #3 in group 0 on rank 1: MPI_Bcast failed: ...". */
dl_status dl_mpi_called(dl_mpi_backend *self, const dl_op_context *op, int result,
                        const char *call);

/* Describes the piece that begins `at` bytes into a span, no larger than one call of
 * MPI can have; it is empty at the span's end and beyond. */
dl_mpi_part dl_mpi_piece_of(const dl_mpi_backend *self, const dl_mpi_span *span,
                            size_t at);

/* Sends `outgoing[rank]` to each rank and receives `incoming[rank]` from each as
 * messages: for sizes that MPI's collectives cannot count, and where only one side
 * knows a size.  In each step a rank sends to one rank and receives from another, so
 * that no rank is flooded.  All ranks must have met before (mpi_meeting.h). */
dl_status dl_mpi_direct(dl_mpi_backend *self, const dl_mpi_span *outgoing,
                        const dl_mpi_span *incoming);

dl_status dl_mpi_all_reduce(dl_backend *backend, const dl_op_context *op,
                            const dl_call *call);
dl_status dl_mpi_reduce(dl_backend *backend, const dl_op_context *op,
                        const dl_call *call);
dl_status dl_mpi_scan(dl_backend *backend, const dl_op_context *op,
                      const dl_call *call);
dl_status dl_mpi_reduce_scatter(dl_backend *backend, const dl_op_context *op,
                                const dl_call *call);
dl_status dl_mpi_broadcast(dl_backend *backend, const dl_op_context *op,
                           const dl_call *call);
dl_status dl_mpi_barrier(dl_backend *backend, const dl_op_context *op,
                         const dl_call *call);
dl_status dl_mpi_all_gather(dl_backend *backend, const dl_op_context *op,
                            const dl_call *call);
dl_status dl_mpi_gather(dl_backend *backend, const dl_op_context *op,
                        const dl_call *call);
dl_status dl_mpi_scatter(dl_backend *backend, const dl_op_context *op,
                         const dl_call *call);
dl_status dl_mpi_all_to_all(dl_backend *backend, const dl_op_context *op,
                            const dl_call *call);
dl_status dl_mpi_post(dl_mpi_comm *comm, const dl_call *call, dl_deadline deadline,
                      dl_work **work);

#endif
