/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Probes.  What a message has is in the head with which it begins (mpi_message.c), so a
 * probe receives the head, and keeps it for the receive that comes later, together with
 * those that were sent before it.  A receive looks among the heads that are kept before
 * it asks MPI. */
#ifndef DISTLITE_PG_MPI_MPI_PROBE_H
#define DISTLITE_PG_MPI_MPI_PROBE_H

#include "pg/mpi/mpi_comm.h"
#include "pg/mpi/mpi_match.h"
#include "pg/mpi/mpi_state.h"

/* Contents of up to so many bytes follow the head: copying them costs less than
 * another message. */
#define DL_MPI_MOST_ALONG ((size_t)8192)

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

/* Starts a probe: `call->probed` is not NULL. */
dl_status dl_mpi_probe_post(dl_mpi_comm *comm, const dl_call *call,
                            dl_deadline deadline, dl_work **work);

/* Gives the first head that is kept for a receive from `peer`, and the rank that it came
 * from.  Returns false if there is none.  Requires the queue's lock. */
bool dl_mpi_probe_take(dl_mpi_comm *comm, int peer, int tag, dl_mpi_frame **frame,
                       int *source);

/* Frees the heads for which no receive has come. */
void dl_mpi_probe_drop(dl_mpi_comm *comm);

#endif
