/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Before each operation the ranks meet: every rank receives the calls of all others.
 * Small arrays travel along, so that many operations end here.  Only the others go on
 * to MPI's collectives, which block and which neither a deadline nor a signal ends;
 * that is safe once all ranks have come.  MPI's non-blocking collectives could be
 * watched instead, but take up to ten times as long as its blocking ones.
 *
 * Few ranks send to each other directly.  Many ranks exchange in rounds, in which the
 * distance doubles: each sends all that it has to the rank at that distance before it,
 * and receives from the rank at that distance behind it.
 *
 * Small arrays from one rank to all, or from all to one, need no meeting: they go along
 * a binomial tree.  A rank waits only for ranks whose arrays it needs: the others may
 * be some operations behind.  A rank thus compares its card with those of some ranks
 * only: ranks that called different operations detect it in this operation or in one of
 * the next, and all ranks meet after a number of operations.
 *
 * A message consists of cards, each of which says what a rank called and has an array
 * behind it.  A message is cut into segments that MPI sends eagerly.  Its first card
 * has the length of the message, and is compared with what this rank called before the
 * rest is received, so that nothing foreign gets into the buffer.  A rank that waits
 * for long sends its peer the calls that it remembers, and receives the news of others
 * (mpi_news.h). */
#ifndef DISTLITE_PG_MPI_MPI_MEETING_H
#define DISTLITE_PG_MPI_MPI_MEETING_H

#include "base/bytes.h"
#include "pg/backend.h"
#include "pg/mpi/mpi_comm.h"

/* Flags that a rank derives from the sizes that it knows; a meeting combines
 * those of all ranks. */
enum {
    DL_MPI_UNEVEN = 1, /* blocks differ in size */
    DL_MPI_LARGE = 2,  /* some exceed one call of MPI */
    DL_MPI_HEAVY = 4,  /* some array did not travel along */
};

/* More operations than one rank runs ahead of another. */
#define DL_MPI_REMEMBERED 128

/* The operations that this rank called most recently in a group, to compare with those
 * that other ranks report.  Where ranks run ahead of each other, a difference may be
 * detected some operations later. */
typedef struct dl_mpi_history {
    uint64_t newest;                          /* sequence number; from 1 */
    uint64_t digest;                          /* of all operations before the newest */
    dl_fingerprint called[DL_MPI_REMEMBERED]; /* by sequence number */
} dl_mpi_history;

/* A message in flight. */
typedef struct dl_mpi_pending_send {
    dl_mpi_handle request;
    int to;
} dl_mpi_pending_send;

typedef struct dl_mpi_meeting {
    dl_mpi_comm *comm; /* borrowed */
    size_t segment;    /* most bytes of one message of MPI */
    char *buffer;      /* the cards of all ranks from this one on, with arrays */
    size_t capacity;   /* of the buffer, without a spare segment behind it */
    size_t *offsets;   /* by rank, of the card; valid after a meeting */
    uint32_t flags;    /* of all ranks in the last meeting */
    dl_mpi_history history;
    int ahead;   /* operations along trees since the last meeting */
    int unheard; /* operations since a meeting last received news */
    /* of the current round */
    dl_mpi_handle received;
    bool is_receiving;
    dl_mpi_pending_send *sent;
    int sent_count;
} dl_mpi_meeting;

/* What one rank contributes to a meeting. */
typedef struct dl_mpi_contribution {
    dl_bytes array; /* at most dl_mpi_meeting_room() */
    uint32_t flags;
} dl_mpi_contribution;

dl_status dl_mpi_meeting_init(dl_mpi_meeting *meeting, dl_mpi_comm *comm);
void dl_mpi_meeting_fini(dl_mpi_meeting *meeting);

/* Returns the most bytes of an array that travels along. */
size_t dl_mpi_meeting_room(const dl_mpi_meeting *meeting);

/* The same if the other ranks contribute no arrays. */
size_t dl_mpi_meeting_room_for_one(void);

/* Meets all other ranks.  Fails with DL_MISMATCH on all ranks if they called different
 * operations, with DL_TIMEOUT, which names the ranks that have not come, or with
 * DL_PEER_LOST, DL_INTERRUPTED or DL_CANCELLED. */
dl_status dl_mpi_meet(dl_mpi_meeting *meeting, const dl_op_context *op,
                      const dl_mpi_contribution *own);

/* To be called after a meeting and before a blocking function of MPI: returns DL_OK on
 * all ranks or on none.  A rank that gives up after the meeting never sends that it
 * goes on, so no rank waits inside MPI for one that does not come.  Once this rank has
 * sent it, neither its deadline nor a signal ends the wait for a second, within which
 * the others decide. */
dl_status dl_mpi_meeting_commit(dl_mpi_meeting *meeting, const dl_op_context *op);

/* Returns the array that `rank` contributed; valid until the next operation. */
const void *dl_mpi_meeting_array(const dl_mpi_meeting *meeting, int rank);

/* Sends the root's array, of at most dl_mpi_meeting_room_for_one() bytes, to all
 * ranks; dl_mpi_meeting_array(root) then returns it.  Fails like dl_mpi_meet(). */
dl_status dl_mpi_tree_down(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
                           dl_bytes array);

/* Sends each rank's array, of at most dl_mpi_meeting_room() bytes, to the root.
 * Fails like dl_mpi_meet(). */
dl_status dl_mpi_tree_up(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
                         dl_bytes array);

/* Adds an operation of the group; does nothing if it is the newest already. */
void dl_mpi_history_note(dl_mpi_history *history, const dl_op_context *op);

/* Returns what was called as operation `sequence`, or NULL if that is no longer
 * remembered or yet to come. */
const dl_fingerprint *dl_mpi_history_at(const dl_mpi_history *history,
                                        uint64_t sequence);

#endif
