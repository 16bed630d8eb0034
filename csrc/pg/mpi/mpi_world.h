/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI as this process has it: started by us or by another part of the program, whoever
 * comes first, and ended at exit by who started it.  Groups are made out of its world. */
#ifndef DISTLITE_PG_MPI_MPI_WORLD_H
#define DISTLITE_PG_MPI_MPI_WORLD_H

#include "base/deadline.h"
#include "pg/mpi/mpi_table.h"

typedef struct dl_mpi_world {
    const dl_mpi_table *mpi;
    int rank;
    int size;
    int last_tag; /* the library's MPI_TAG_UB */
    /* Reductions of our own: those of floats pass NaN on, which MPI's do not, and MPICH
     * 4.0 takes the largest integers for negative ones. */
    dl_mpi_handle min_float32, max_float32, min_float64, max_float64;
    dl_mpi_handle min_uint64, max_uint64;
} dl_mpi_world;

/* Loads and starts MPI on the first call.  DL_UNSUPPORTED: it allows calls from one
 * thread only, or a launcher of another MPI has started this process. */
dl_status dl_mpi_world_open(const dl_mpi_world **world);

/* An operation was given up while MPI still works on it, or this process is about to end
 * in failure: MPI will not be ended in order, for which all ranks would be needed. */
void dl_mpi_world_forsake(void);

/* False once the end of MPI has begun, or in a forked child: no more calls. */
bool dl_mpi_world_is_open(void);

/* The same as DL_OK or DL_CLOSED. */
dl_status dl_mpi_world_admit(void);

/* Lets MPI move what is under way. */
void dl_mpi_world_progress(void);

/* Called once, before MPI is ended, by whomever that is. */
void dl_mpi_world_at_end(void (*call)(void));

#endif
