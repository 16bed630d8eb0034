/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the members of a group agree in its store on how to reach each other: by memory
 * that all of them share, or by MPI.  Creating a communicator blocks until all of them do
 * so, and they decide together: either every member goes on or none does, even if some
 * of them give up meanwhile. */
#ifndef DISTLITE_PG_MPI_MPI_MEMBERS_H
#define DISTLITE_PG_MPI_MPI_MEMBERS_H

#include "pg/backend.h"
#include "pg/mpi/mpi_processes.h"

/* What a member publishes in the store. */
typedef struct dl_mpi_member {
    int world_rank, world_size; /* in MPI's world */
    dl_mpi_process process;
    /* Equal for members that may share memory (pg/cpu/cpu_backend.h); 0: none may. */
    uint64_t memory_space;
} dl_mpi_member;

typedef struct dl_mpi_members {
    int *world_ranks;          /* by rank in the group */
    dl_mpi_process *processes; /* likewise */
    bool share_memory;         /* all of them do; all members find the same */
    /* The caller was interrupted after the others had decided to go on: a communicator
     * has to be created all the same. */
    bool is_interrupted;
} dl_mpi_members;

/* Returns DL_OK on all members or on none.  A member fails for its deadline, an
 * interruption or members that do not fit together; members that would have gone on
 * then fail with DL_PEER_LOST, which names the first one that failed. */
dl_status dl_mpi_members_meet(dl_mpi_members *members,
                              const dl_backend_options *options,
                              const dl_mpi_member *self, dl_deadline deadline);

#endif
