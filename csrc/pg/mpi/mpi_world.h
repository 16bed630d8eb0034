/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI as this process has it: started by this library or by another part of the
 * program, whichever comes first, and ended at exit by whoever started it.  Groups are
 * made from the ranks of its world. */
#ifndef DISTLITE_PG_MPI_MPI_WORLD_H
#define DISTLITE_PG_MPI_MPI_WORLD_H

#include "base/deadline.h"
#include "pg/mpi/mpi_table.h"

typedef struct dl_mpi_world {
    const dl_mpi_table *mpi;
    int rank;
    int size;
    int last_tag; /* the library's MPI_TAG_UB */
    /* Reduction operations of our own: for floats they propagate NaN, which MPI's do
     * not, and MPICH 4.0 takes the largest uint64 for negative. */
    dl_mpi_handle min_float32, max_float32, min_float64, max_float64;
    dl_mpi_handle min_uint64, max_uint64;
} dl_mpi_world;

/* Returns the world; loads and starts MPI on the first call.  DL_UNSUPPORTED: MPI
 * has a thread level below MPI_THREAD_MULTIPLE, or a launcher of another MPI has
 * started this process. */
dl_status dl_mpi_world_open(const dl_mpi_world **world);

/* Keeps MPI from being finalized at exit, which needs all ranks: an operation was given
 * up while MPI still works on it, or this process ends in failure. */
void dl_mpi_world_skip_finalize(void);

/* Returns false once the end of MPI has begun, and in a forked child: MPI must
 * not be called then. */
bool dl_mpi_world_is_open(void);

/* Returns the same as DL_OK, or fails with DL_CLOSED. */
dl_status dl_mpi_world_admit(void);

/* Calls MPI, so that it makes progress with what is in flight. */
void dl_mpi_world_progress(void);

/* Registers `call`, which is called once before MPI is ended, by whomever that is. */
void dl_mpi_world_at_end(void (*call)(void));

#endif
