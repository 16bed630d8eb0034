/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the operations that move bytes share: one array as a span, what travels along
 * when the ranks meet, and spans as arguments of MPI. */
#ifndef DISTLITE_PG_MPI_MPI_PLAIN_H
#define DISTLITE_PG_MPI_MPI_PLAIN_H

#include "pg/mpi/mpi_state.h"

/* dl_mpi_flatten() makes an array contiguous: `span` is the array itself or, if it
 * has gaps, memory in `self->own`, filled if `is_read`.  dl_mpi_unflatten() copies
 * that memory back. */
dl_status dl_mpi_flatten(dl_mpi_backend *self, const dl_tensor *tensor, bool is_read,
                         dl_mpi_span *span);
void dl_mpi_unflatten(const dl_tensor *tensor, const dl_mpi_span *span);

/* dl_mpi_meet_with() meets the other ranks and brings `array` along.
 * dl_mpi_meet_empty() brings nothing, and commits to a blocking function of MPI
 * (dl_mpi_meeting_commit()). */
dl_status dl_mpi_meet_with(dl_mpi_backend *self, const dl_op_context *op,
                           dl_bytes array, uint32_t flags);
dl_status dl_mpi_meet_empty(dl_mpi_backend *self, const dl_op_context *op);

/* dl_mpi_fits() returns whether an array of `size` bytes may travel along;
 * dl_mpi_take() fills `span` with what `rank` brought, from `offset` on. */
bool dl_mpi_fits(const dl_mpi_backend *self, size_t size);
void dl_mpi_take(dl_mpi_backend *self, int rank, size_t offset,
                 const dl_mpi_span *span);

dl_bytes dl_mpi_bytes_of(const dl_mpi_span *span);
dl_mpi_part dl_mpi_part_of(const dl_mpi_backend *self, const dl_mpi_span *span);

/* Describes contiguous blocks, whose total an int can hold, by counts and offsets;
 * `lists` has two entries for each rank. */
dl_mpi_parts dl_mpi_parts_of(const dl_mpi_backend *self, const dl_mpi_spans *spans,
                             int *lists);

#endif
