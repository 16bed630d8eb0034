/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups over MPI, whichever library this process has or can load: one communicator for
 * each, collectives by MPI's own, messages by its non-blocking calls. */
#ifndef DISTLITE_PG_MPI_MPI_BACKEND_H
#define DISTLITE_PG_MPI_MPI_BACKEND_H

#include "pg/backend.h"

/* Members tell each other in the group's store which ranks of MPI's world they are; then
 * they make their communicator.  Starts MPI if nobody has. */
dl_status dl_mpi_backend_new(const dl_backend_options *options, dl_deadline deadline,
                             dl_backend **backend);

/* What the library says of itself, and its file; loads it and starts nothing.  DL_NOT_FOUND
 * or DL_UNSUPPORTED: there is none to use. */
dl_status dl_mpi_probe(const char **text, const char **path);

/* This process in MPI's world, which is started if nobody has. */
dl_status dl_mpi_place(int *rank, int *size);

/* Rank 0's `size` bytes to all of the world. */
dl_status dl_mpi_tell(void *bytes, size_t size, dl_deadline deadline);

/* This process ends in failure: not to wait for all ranks at exit, so that the launcher
 * sees it and ends the others.  Does nothing where MPI was not started. */
void dl_mpi_give_up(void);

#endif
