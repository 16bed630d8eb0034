/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the members of a group meet in its store before they make their communicator, which
 * is a call that blocks until all have made it.  So they decide together: either every
 * member goes on to make it or none does, even if some of them give up meanwhile. */
#ifndef DISTLITE_PG_MPI_MPI_MEMBERS_H
#define DISTLITE_PG_MPI_MPI_MEMBERS_H

#include "pg/backend.h"

/* What a member tells the others. */
typedef struct dl_mpi_member {
    int world_rank, world_size; /* in MPI */
    int64_t piece;              /* bytes that it hands to MPI at a time */
} dl_mpi_member;

typedef struct dl_mpi_members {
    int *world_ranks; /* by rank in the group */
    /* The caller wanted out when the others had gone on already: the communicator has to
     * be made all the same. */
    bool is_interrupted;
} dl_mpi_members;

/* DL_OK on all members or on none.  A member that fails first, for its deadline, an
 * interruption or members that do not fit together, is named on those that come later
 * (DL_PEER_LOST). */
dl_status dl_mpi_members_meet(dl_mpi_members *members,
                              const dl_backend_options *options,
                              const dl_mpi_member *self, dl_deadline deadline);

#endif
