/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Probes.  The size and the dtype of a message are in the head with which it begins
 * (mpi_message.c), so a probe receives the head and keeps it for a later receive,
 * together with the heads that were sent before it.  A receive searches the kept heads
 * before it asks MPI. */
#ifndef DISTLITE_PG_MPI_MPI_PROBE_H
#define DISTLITE_PG_MPI_MPI_PROBE_H

#include "pg/mpi/mpi_comm.h"
#include "pg/mpi/mpi_match.h"
#include "pg/mpi/mpi_state.h"

typedef struct dl_mpi_head {
    uint64_t size; /* of the contents */
    uint32_t code; /* of an opaque dtype */
    uint16_t tag;  /* of the message with the contents, from DL_MPI_DATA_TAG; 0: here */
    uint8_t dtype;
    uint8_t unused;
} dl_mpi_head;

_Static_assert(sizeof(dl_mpi_head) == 16, "ranks send it to each other");

/* The memory that MPI sends a head from or receives it to.  It may outlive the
 * message. */
typedef struct dl_mpi_frame {
    dl_mpi_head head;
    uint8_t contents[];
} dl_mpi_frame;

/* Returns the most bytes of contents that follow the head: copying them costs less than
 * another message, and MPI sends both eagerly. */
static inline size_t
dl_mpi_most_along(const dl_mpi_comm *comm)
{
    return (size_t)comm->mpi->eager_size - sizeof(dl_mpi_head);
}

/* Starts a probe: `call->probed` is not NULL. */
dl_status dl_mpi_probe_post(dl_mpi_comm *comm, const dl_call *call,
                            dl_deadline deadline, dl_work **work);

/* Takes the first head that is kept for a receive from `peer`, and stores the rank that
 * sent it.  Returns false if there is none.  Requires the queue's lock. */
bool dl_mpi_probe_take(dl_mpi_comm *comm, int peer, int tag, dl_mpi_frame **frame,
                       int *source);

/* Frees the heads for which no receive has come. */
void dl_mpi_probe_drop(dl_mpi_comm *comm);

#endif
