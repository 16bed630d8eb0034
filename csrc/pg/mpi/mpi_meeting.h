/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Before each operation the ranks meet: everyone learns what everyone called, and small
 * arrays come along, so that many operations end here.  Only the others are then called
 * in MPI, whose collectives wait without looking at clock or signals: nobody is late any
 * more.  MPI's non-blocking collectives could be watched instead, but take up to ten times
 * as long as its blocking ones.  Few ranks send to each other directly; of many, in each
 * round, the distance doubling, each sends all that it has to the one before it and hears
 * from the one behind.
 *
 * Small arrays that go one way only need no meeting: they go along a tree (mpi_tree.h),
 * whose ranks may be some operations apart. */
#ifndef DISTLITE_PG_MPI_MPI_MEETING_H
#define DISTLITE_PG_MPI_MPI_MEETING_H

#include "base/bytes.h"
#include "pg/backend.h"
#include "pg/mpi/mpi_comm.h"
#include "pg/mpi/mpi_history.h"

/* What ranks tell of the sizes they know: joined over all. */
enum {
    DL_MPI_UNEVEN = 1, /* blocks differ in size */
    DL_MPI_LARGE = 2,  /* some are more than MPI takes at once */
    DL_MPI_HEAVY = 4,  /* some array did not come along */
};

/* A message under way. */
typedef struct dl_mpi_parcel {
    dl_mpi_handle request;
    int to;
} dl_mpi_parcel;

typedef struct dl_mpi_meeting {
    dl_mpi_comm *comm; /* borrowed */
    size_t segment;    /* bytes of a message, at most */
    char *buffer;      /* a card for each rank, from this one on, each with its array */
    size_t capacity;   /* of the buffer, but for a segment */
    size_t *offsets;   /* by rank, of the card; fixed by a meeting */
    uint32_t flags;    /* of the last meeting */
    dl_mpi_history history;
    int ahead;   /* operations since all have met */
    int unheard; /* and since others were listened to */
    /* of a round */
    dl_mpi_handle received;
    bool is_receiving;
    dl_mpi_parcel *sent;
    int sent_count;
} dl_mpi_meeting;

/* What one rank brings. */
typedef struct dl_mpi_baggage {
    dl_bytes array; /* at most dl_mpi_meeting_room() */
    uint32_t flags;
} dl_mpi_baggage;

dl_status dl_mpi_meeting_init(dl_mpi_meeting *meeting, dl_mpi_comm *comm);
void dl_mpi_meeting_fini(dl_mpi_meeting *meeting);

/* What an array may have to come along. */
size_t dl_mpi_meeting_room(const dl_mpi_meeting *meeting);

/* The same where the others bring none. */
size_t dl_mpi_meeting_room_for_one(void);

/* DL_MISMATCH on all ranks; DL_TIMEOUT names who has not been heard of; DL_INTERRUPTED,
 * DL_CANCELLED. */
dl_status dl_mpi_meet(dl_mpi_meeting *meeting, const dl_op_context *op,
                      const dl_mpi_baggage *own);

/* After a meeting and before a call of MPI's that waits for all ranks: DL_OK on all ranks
 * or on none.  A rank that has given up the meeting never says that it goes on, so nobody
 * waits in MPI for one that does not come.  Once this rank has said so, it neither looks
 * at its deadline nor at signals for a second, in which the others decide. */
dl_status dl_mpi_meeting_commit(dl_mpi_meeting *meeting, const dl_op_context *op);

/* The array that `rank` brought, until the next meeting. */
const void *dl_mpi_meeting_array(const dl_mpi_meeting *meeting, int rank);

#endif
