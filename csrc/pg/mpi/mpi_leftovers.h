/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests that MPI has not completed and that no thread waits for; most of them belong
 * to operations that were given up.  MPI may use their memory until it completes them
 * or the process ends, so whoever adds a request leaves that memory alone.
 * MPI_Finalize with such requests pending corrupts memory in some libraries and blocks
 * in others, so before it they get a moment to complete. */
#ifndef DISTLITE_PG_MPI_MPI_LEFTOVERS_H
#define DISTLITE_PG_MPI_MPI_LEFTOVERS_H

#include "pg/mpi/mpi_table.h"

/* Adds a request; from any thread.  `memory` is from malloc() and is freed once MPI has
 * completed the request; NULL: nothing is freed. */
void dl_mpi_leftover_add(const dl_mpi_table *mpi, dl_mpi_handle request, void *memory);

/* Waits up to a second for the requests to complete.  Returns false if some are left:
 * MPI must not be finalized then. */
bool dl_mpi_leftovers_settle(const dl_mpi_table *mpi);

#endif
