/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ranks of MPI's world have ended, among those of this host: MPI itself may not
 * report it, and waits for them.  The members of a group publish their process ids in
 * the store (mpi_members.h); a pidfd reports the end of each process, so that a reused
 * process id is not mistaken for the rank. */
#ifndef DISTLITE_PG_MPI_MPI_PROCESSES_H
#define DISTLITE_PG_MPI_MPI_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct dl_mpi_process {
    int pid;
    /* The process ids among which `pid` is one: equal for two processes of one host and
     * one pid namespace.  0: not known. */
    uint64_t space;
} dl_mpi_process;

dl_mpi_process dl_mpi_process_own(void);

/* Watches the process of a rank of the world of `world_size`, which must be known to be
 * alive.  Does nothing for a process that cannot be watched from here, and for one that
 * is watched already. */
void dl_mpi_process_watch(int world_rank, int world_size,
                          const dl_mpi_process *process);

/* Returns false for ranks that are not watched.  `*pid`, unless NULL, is set to the
 * process that has ended.  Does not block; from any thread. */
bool dl_mpi_process_has_ended(int world_rank, int *pid);

/* Returns whether any watched rank has ended.  If the failure detector has just seen a
 * process end (dl_cpu_last_end()), this waits a moment for a rank's pidfd, which says so
 * only when the process has ended altogether. */
bool dl_mpi_process_any_has_ended(void);

#endif
