/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the operations that move bytes share: one array as a span, what comes along when
 * the ranks meet, and spans as MPI's arguments. */
#ifndef DISTLITE_PG_MPI_MPI_PLAIN_H
#define DISTLITE_PG_MPI_MPI_PLAIN_H

#include "pg/mpi/mpi_state.h"

/* An array with its bytes in a row: itself or, if it has gaps, `self->own`, filled where
 * the array is read; and the way back. */
dl_status dl_mpi_flatten(dl_mpi_backend *self, const dl_tensor *tensor, bool is_read,
                         dl_mpi_span *span);
void dl_mpi_unflatten(const dl_tensor *tensor, const dl_mpi_span *span);

/* Meets with `array`, or with nothing before a call that waits. */
dl_status dl_mpi_meet_with(dl_mpi_backend *self, const dl_op_context *op,
                           dl_bytes array, uint32_t flags);
dl_status dl_mpi_meet_empty(dl_mpi_backend *self, const dl_op_context *op);

/* Whether so much may come along; and what `rank` brought, from `offset` on. */
bool dl_mpi_fits(const dl_mpi_backend *self, size_t size);
void dl_mpi_take(dl_mpi_backend *self, int rank, size_t offset,
                 const dl_mpi_span *span);

dl_bytes dl_mpi_bytes_of(const dl_mpi_span *span);
dl_mpi_part dl_mpi_part_of(const dl_mpi_backend *self, const dl_mpi_span *span);

/* Blocks in a row whose sum an int can hold; `lists` has two entries for each rank. */
dl_mpi_parts dl_mpi_parts_of(const dl_mpi_backend *self, const dl_mpi_spans *spans,
                             int *lists);

#endif
