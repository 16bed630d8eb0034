/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups over MPI, with whichever library this process has loaded or can load.  A group
 * with ranks on several hosts has a communicator, by which MPI moves large arrays of
 * collectives; a CPU backend beside it does everything else. */
#ifndef DISTLITE_PG_MPI_MPI_BACKEND_H
#define DISTLITE_PG_MPI_MPI_BACKEND_H

#include "pg/backend.h"

/* Creates a backend beside a CPU backend of the same ranks, which tell each other over it
 * which ranks of MPI's world they are; or that CPU backend alone, if they share memory.
 * Only the latter has an origin, out of which other groups are made without one. */
dl_status dl_mpi_backend_new(const dl_backend_options *options, dl_deadline deadline,
                             dl_backend **backend);

/* Informs the other ranks that this one fails before it calls dl_mpi_backend_new(). */
void dl_mpi_backend_refuse(const dl_backend_options *options);

/* Returns the library's version text and its file.  Loads the library, but does
 * not start MPI.  Fails with DL_NOT_FOUND or DL_UNSUPPORTED if there is no library
 * that can be used. */
dl_status dl_mpi_probe(const char **text, const char **path);

/* Returns this process's rank in MPI's world and the size of that world.  Starts MPI if
 * it has not been started. */
dl_status dl_mpi_place(int *rank, int *size);

/* Broadcasts rank 0's `size` bytes to all ranks of the world.  After a failure MPI is
 * not finalized at exit, since the broadcast may still be pending. */
dl_status dl_mpi_broadcast_in_world(void *bytes, size_t size, dl_deadline deadline);

/* For a process that ends in failure: at exit MPI is not finalized, which would wait
 * for all ranks, so that the launcher notices the failure and ends the other ranks.
 * Does nothing if MPI was not started. */
void dl_mpi_give_up(void);

#endif
