/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the members of a group agree in its store to create their communicator.  That
 * call blocks until all of them make it, so they decide together: either every member
 * makes it or none does, even if some of them give up meanwhile. */
#ifndef DISTLITE_PG_MPI_MPI_MEMBERS_H
#define DISTLITE_PG_MPI_MPI_MEMBERS_H

#include "pg/backend.h"
#include "pg/mpi/mpi_processes.h"

/* What a member publishes in the store. */
typedef struct dl_mpi_member {
    int world_rank, world_size; /* in MPI's world */
    int64_t piece;              /* most bytes of one call of MPI */
    dl_mpi_process process;
} dl_mpi_member;

typedef struct dl_mpi_members {
    int *world_ranks;          /* by rank in the group */
    dl_mpi_process *processes; /* likewise */
    /* The caller was interrupted after the others had decided to go on: the
     * communicator has to be created all the same. */
    bool is_interrupted;
} dl_mpi_members;

/* Returns DL_OK on all members or on none.  A member fails for its deadline, an
 * interruption or members that do not fit together; members that would have gone on
 * then fail with DL_PEER_LOST, which names the first one that failed. */
dl_status dl_mpi_members_meet(dl_mpi_members *members,
                              const dl_backend_options *options,
                              const dl_mpi_member *self, dl_deadline deadline);

#endif
