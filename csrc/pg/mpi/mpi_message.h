/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between two ranks.  MPI does not compare types, so each message begins with a
 * head that describes its elements.  Small contents follow the head.  Large contents are
 * a message of their own, whose tag is in the head, and go from array to array.  The
 * array is not touched before the head has been checked.
 *
 * Heads are matched here and not by MPI: they are taken by MPI_Improbe as they arrive,
 * and each goes to the first receive that it fits, in the order in which receives were
 * posted, or waits for one.  So a receive can always be withdrawn, a probe is a look at
 * what waits, and receives from any source need none of MPI's own, which MPICH over UCX
 * (5.0.2 and before) may never complete. */
#ifndef DISTLITE_PG_MPI_MPI_MESSAGE_H
#define DISTLITE_PG_MPI_MPI_MESSAGE_H

#include "pg/backend.h"
#include "pg/mpi/mpi_comm.h"

dl_status dl_mpi_mailbox_init(dl_mpi_mailbox *mailbox, int size);

/* Frees the heads that no receive has taken. */
void dl_mpi_mailbox_fini(dl_mpi_mailbox *mailbox);

/* Starts a send, a receive or a probe, which a thread that waits and the runner poll. */
dl_status dl_mpi_post(dl_mpi_comm *comm, const dl_call *call, dl_deadline deadline,
                      dl_work **work);

/* For the runner: polls all messages that have not ended, and ends those that are over.
 * Returns whether some are left. */
bool dl_mpi_poll_messages(dl_mpi_comm *comm);

/* Before MPI ends: hands pending requests to the leftovers (mpi_world.h).  Neither the
 * messages nor their arrays are freed.  Returns false. */
bool dl_mpi_leave_messages(dl_mpi_comm *comm);

#endif
