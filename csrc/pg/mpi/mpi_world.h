/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI in this process: started by this library or by another part of the program,
 * whichever comes first, and ended at exit by the one that started it.  Groups are made
 * from the ranks of its world.
 *
 * A progress thread calls MPI every 10 ms: over some networks the last bytes of an
 * operation leave the rank only when it calls MPI again, and by then the rank may wait
 * elsewhere, as in a store. */
#ifndef DISTLITE_PG_MPI_MPI_WORLD_H
#define DISTLITE_PG_MPI_MPI_WORLD_H

#include "pg/mpi/mpi_table.h"

typedef struct dl_mpi_world {
    const dl_mpi_table *mpi;
    int rank;
    int size;
    int last_tag; /* the library's MPI_TAG_UB */
} dl_mpi_world;

/* Returns the world; loads and starts MPI on the first call.  DL_UNSUPPORTED: MPI
 * has a thread level below MPI_THREAD_MULTIPLE, or a launcher of another MPI has
 * started this process. */
dl_status dl_mpi_world_open(const dl_mpi_world **world);

/* Keeps MPI from being finalized at exit, which needs all ranks: an operation was given
 * up while MPI still works on it, a rank is lost, or this process ends in failure.  Ranks
 * of this host that have ended keep it from that in any case. */
void dl_mpi_world_skip_finalize(void);

/* Limits how long the end waits for all ranks: an operation has failed here. */
void dl_mpi_world_note_failure(void);

/* Returns false once the end of MPI has begun, and in a forked child: MPI must
 * not be called then. */
bool dl_mpi_world_is_open(void);

/* Returns the same as DL_OK, or fails with DL_CLOSED. */
dl_status dl_mpi_world_admit(void);

/* Starts the progress thread, which calls MPI from now on; from any thread,
 * idempotent. */
dl_status dl_mpi_progress_start(void);

#endif
