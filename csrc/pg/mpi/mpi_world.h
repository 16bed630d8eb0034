/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI in this process: started by this library or by another part of the program,
 * whichever comes first, and ended at exit by the one that started it.  Groups are made
 * from the ranks of its world.
 *
 * The runner polls messages in flight that no thread waits for, as MPI makes progress
 * only while it is called.  One thread serves the process.  After a while without such
 * messages it calls MPI every 10 ms: over some networks the bytes of a send leave the
 * rank only when it calls MPI again, and by then the rank may wait elsewhere, as in a
 * store, for the receiver of that message.
 *
 * Leftovers are requests that MPI has not completed and that no thread waits for; most
 * of them belong to operations that were given up.  MPI may use their memory until it
 * completes them or the process ends, so whoever adds a request leaves that memory
 * alone.  MPI_Finalize with such requests pending corrupts memory in some libraries and
 * blocks in others, so before it they get a moment to complete. */
#ifndef DISTLITE_PG_MPI_MPI_WORLD_H
#define DISTLITE_PG_MPI_MPI_WORLD_H

#include "base/deadline.h"
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
 * of this host that have ended (mpi_processes.h) keep it from that in any case. */
void dl_mpi_world_skip_finalize(void);

/* Returns false once the end of MPI has begun, and in a forked child: MPI must
 * not be called then. */
bool dl_mpi_world_is_open(void);

/* Returns the same as DL_OK, or fails with DL_CLOSED. */
dl_status dl_mpi_world_admit(void);

/* Starts the runner, which calls MPI from now on; from any thread, idempotent. */
dl_status dl_mpi_runner_start(void);

/* Makes the runner poll messages again if it has long had none; otherwise it does so within
 * 200 us: most messages end before that, on a thread that waits for them. */
void dl_mpi_runner_wake(void);

/* Adds a leftover; from any thread.  `memory` is from malloc() and is freed once MPI
 * has completed the request; NULL: nothing is freed. */
void dl_mpi_leftover_add(dl_mpi_handle request, void *memory);

/* Waits until MPI has completed all leftovers, for `span` nanoseconds at most.  Returns
 * false if some are left. */
bool dl_mpi_leftover_flush(int64_t span);

#endif
