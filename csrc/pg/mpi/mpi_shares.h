/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions by operations of ours where the library's own algorithm for those sends all
 * of an array in each round: every rank folds its share of all arrays, a part of it while
 * the next one travels, and the shares are put together. */
#ifndef DISTLITE_PG_MPI_MPI_SHARES_H
#define DISTLITE_PG_MPI_MPI_SHARES_H

#include "pg/mpi/mpi_reduction.h"

/* Whether arrays of `size` bytes are better reduced so. */
bool dl_mpi_shares_pay(const dl_mpi_backend *self, const dl_mpi_reduction *how,
                       size_t size);

/* All ranks' `data` into all; they have met. */
dl_status dl_mpi_all_reduce_shares(dl_mpi_backend *self, const dl_mpi_reduction *how,
                                   const dl_mpi_span *data);

/* Into the root's; the others' stay as they are. */
dl_status dl_mpi_reduce_shares(dl_mpi_backend *self, const dl_mpi_reduction *how,
                               const dl_mpi_span *data, int root);

#endif
