/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests that nobody waits for, most of them given up, and that MPI has not completed:
 * it may use their memory until it has, or until the process ends, so whoever adds one
 * leaves that memory alone.  MPI_Finalize with such requests corrupts memory in some
 * libraries and blocks in others: before the end they get a moment more. */
#ifndef DISTLITE_PG_MPI_MPI_LEFTOVERS_H
#define DISTLITE_PG_MPI_MPI_LEFTOVERS_H

#include "pg/mpi/mpi_table.h"

/* From any thread.  `memory` is from malloc(), and freed once MPI has completed the
 * request; NULL: it belongs to somebody else. */
void dl_mpi_leftover_add(const dl_mpi_table *mpi, dl_mpi_handle request, void *memory);

/* Completes what can be completed soon.  False: something is left, and MPI must not be
 * finalized. */
bool dl_mpi_leftovers_settle(const dl_mpi_table *mpi);

#endif
