/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small arrays from one rank to all, or from all to one, along a binomial tree.  Each rank
 * waits for those only whose arrays it needs: the others may be some operations behind.
 * Who compares cards with whom is then a part of all: ranks that called different
 * operations hear of it in this operation or in one of the next, and all meet again after
 * a number of them. */
#ifndef DISTLITE_PG_MPI_MPI_TREE_H
#define DISTLITE_PG_MPI_MPI_TREE_H

#include "pg/mpi/mpi_meeting.h"

/* The root's array, of at most dl_mpi_meeting_room_for_one(), to everyone: from then on
 * dl_mpi_meeting_array(root) has it.  All fail like dl_mpi_meet(). */
dl_status dl_mpi_tree_down(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
                           dl_bytes array);

/* Everyone's array, of at most dl_mpi_meeting_room(), to the root. */
dl_status dl_mpi_tree_up(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
                         dl_bytes array);

#endif
