/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks as MPI takes them: each contiguous and, where asked for, each directly behind
 * the one before.  Blocks that lie differently go through a copy. */
#ifndef DISTLITE_PG_MPI_MPI_SPANS_H
#define DISTLITE_PG_MPI_MPI_SPANS_H

#include "base/buffer.h"
#include "tensor/tensor.h"

typedef struct dl_mpi_span {
    char *data;
    size_t size;
} dl_mpi_span;

typedef struct dl_mpi_spans {
    dl_mpi_span *spans; /* by rank */
    int count;
    size_t size; /* of all blocks */
    bool is_even;
    dl_buffer copy;
} dl_mpi_spans;

dl_status dl_mpi_spans_init(dl_mpi_spans *spans, int count);
void dl_mpi_spans_fini(dl_mpi_spans *spans);

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

#endif
