/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions by operations of our own, where the library's algorithm for those sends
 * the whole array in each round.  Here every rank reduces its share of all arrays, one
 * part while the next is in flight, and then the shares are put together. */
#ifndef DISTLITE_PG_MPI_MPI_SHARES_H
#define DISTLITE_PG_MPI_MPI_SHARES_H

#include "pg/mpi/mpi_reduction.h"

/* Returns whether arrays of `size` bytes are reduced faster in this way. */
bool dl_mpi_shares_pay(const dl_mpi_backend *self, const dl_mpi_reduction *how,
                       size_t size);

/* Reduces the `data` of all ranks, in place on all of them, after they have met. */
dl_status dl_mpi_all_reduce_shares(dl_mpi_backend *self, const dl_mpi_reduction *how,
                                   const dl_mpi_span *data);

/* Does the same into the root's `data`; the others' stays as it is. */
dl_status dl_mpi_reduce_shares(dl_mpi_backend *self, const dl_mpi_reduction *how,
                               const dl_mpi_span *data, int root);

#endif
