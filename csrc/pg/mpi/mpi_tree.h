/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small arrays from one rank to all, or from all to one, along a binomial tree.  A rank
 * waits only for ranks whose arrays it needs: the others may be some operations behind.
 * A rank thus compares its card with those of some ranks only: ranks that called
 * different operations detect it in this operation or in one of the next, and all ranks
 * meet after a number of operations. */
#ifndef DISTLITE_PG_MPI_MPI_TREE_H
#define DISTLITE_PG_MPI_MPI_TREE_H

#include "pg/mpi/mpi_meeting.h"

/* Sends the root's array, of at most dl_mpi_meeting_room_for_one() bytes, to all
 * ranks; dl_mpi_meeting_array(root) then returns it.  Fails like dl_mpi_meet(). */
dl_status dl_mpi_tree_down(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
                           dl_bytes array);

/* Sends each rank's array, of at most dl_mpi_meeting_room() bytes, to the root.
 * Fails like dl_mpi_meet(). */
dl_status dl_mpi_tree_up(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
                         dl_bytes array);

#endif
