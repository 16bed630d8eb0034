/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Receives from any source, matched by MPI_Improbe and MPI_Imrecv.  They are not posted to
 * MPI beforehand: MPICH over UCX (5.0.2 and before) never completes a posted receive from
 * any source whose message had already arrived, although it writes the data.
 *
 * MPI matches posted receives in the order in which they were posted.  To keep that order,
 * the receives of a communicator that wait here form a queue, a message belongs to the
 * first of them that it fits, and a receive from one rank joins the queue as well if a
 * message for it could belong to one before it. */
#ifndef DISTLITE_PG_MPI_MPI_MATCH_H
#define DISTLITE_PG_MPI_MPI_MATCH_H

#include "base/list.h"
#include "pg/mpi/mpi_comm.h"

/* A receive that may wait in the queue; zeroed, it is in none.  All fields are guarded
 * by the lock of the communicator's queue. */
typedef struct dl_mpi_match {
    dl_list node; /* in the queue */
    dl_mpi_part part;
    int peer; /* or MPI_ANY_SOURCE */
    int tag;
    bool is_matched;
    /* valid once it is matched */
    int result;
    dl_mpi_handle request;
} dl_mpi_match;

/* Appends the receive to the queue.  Returns false if it need not wait there: the
 * caller then posts it with MPI_Irecv, before it releases the queue's lock, which this
 * function requires.  The array must stay in place until the receive is matched and its
 * request has ended, or until it is taken back. */
bool dl_mpi_match_post(dl_mpi_comm *comm, dl_mpi_match *self, const dl_mpi_part *part,
                       int peer, int tag);

/* Looks for a message for the receive, and gives earlier messages to the receives
 * before it.  Returns true once the receive is matched: `*result` is MPI's, and if that
 * is 0, `*request` is to be tested. */
bool dl_mpi_match_look(dl_mpi_comm *comm, dl_mpi_match *self, int *result,
                       dl_mpi_handle *request);

/* Gives a message that MPI has taken out of matching to the first receive in the queue
 * that it fits.  Returns false if there is none.  Requires the queue's lock. */
bool dl_mpi_match_give(dl_mpi_comm *comm, int source, int tag, dl_mpi_handle message);

/* Removes the receive from the queue if it is still there. */
void dl_mpi_match_take_back(dl_mpi_comm *comm, dl_mpi_match *self);

#endif
