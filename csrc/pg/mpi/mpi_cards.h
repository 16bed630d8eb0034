/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The messages that ranks exchange when they meet, or along a tree.  A message consists
 * of cards, each of which says what a rank called and has an array behind it.  A
 * message is cut into segments that MPI sends eagerly.  Its first card has the length
 * of the message, and is compared with what this rank called before the rest is
 * received, so that nothing foreign gets into the buffer.  A rank that waits for long
 * tells its peer what it called, and listens to the news of others (mpi_news.h). */
#ifndef DISTLITE_PG_MPI_MPI_CARDS_H
#define DISTLITE_PG_MPI_MPI_CARDS_H

#include "pg/mpi/mpi_meeting.h"
#include "pg/record/wait_graph.h"

/* Set among a card's flags (mpi_meeting.h) if it travels along a tree. */
#define DL_MPI_ONE_WAY 8

/* Precedes each array, at a multiple of 8 bytes. */
typedef struct dl_mpi_card {
    dl_fingerprint fingerprint;
    uint32_t sequence; /* low half; likewise the digest */
    uint32_t digest;
    uint32_t sent; /* bytes of all cards and arrays of this message */
    uint16_t size; /* bytes of the array */
    uint16_t flags;
} dl_mpi_card;

/* Adds the ranks beyond `partner` that must call the operation before it can
 * end on this rank.  The partner itself may be merely slow, while one of these
 * waits for this rank. */
typedef void (*dl_mpi_needed_fn)(const dl_mpi_comm *comm, const dl_op_context *op,
                                 int partner, dl_awaited *awaited);

/* The peer of a message, which also brings the cards of `count` ranks from `first` on;
 * these reach this rank by no other way. */
typedef struct dl_mpi_partner {
    int rank;
    int first;
    int count;
    dl_mpi_needed_fn add_needed; /* NULL: no other rank is needed */
} dl_mpi_partner;

static inline dl_mpi_card *
dl_mpi_card_at(const dl_mpi_meeting *meeting, size_t at)
{
    return (dl_mpi_card *)(void *)(meeting->buffer + at);
}

static inline dl_mpi_card *
dl_mpi_card_of(const dl_mpi_meeting *meeting, int rank)
{
    return dl_mpi_card_at(meeting, meeting->offsets[rank]);
}

/* Returns the size of a card with its array, up to the next card. */
static inline size_t
dl_mpi_card_size(const dl_mpi_card *card)
{
    return sizeof *card + (((size_t)card->size + 7) & ~(size_t)7);
}

/* Begins an operation: adds it to the history, and writes this rank's card and array to
 * the start of the buffer, as a message of its own.  Fails if the communicator was
 * aborted or MPI has ended. */
dl_status dl_mpi_cards_begin(dl_mpi_meeting *meeting, const dl_op_context *op,
                             const dl_mpi_contribution *own);

/* Returns the size of the cards of `count` ranks, which lie in the buffer from this
 * rank's card on, and sets their offsets. */
size_t dl_mpi_cards_measure(dl_mpi_meeting *meeting, int count);

/* Posts the receive of a message's first segment, `at` bytes into the buffer. */
dl_status dl_mpi_cards_expect(dl_mpi_meeting *meeting, int from, size_t at);

/* Waits for a message whose first segment was posted, receives the rest of it, and
 * advances `*at` to its end.  Fails with DL_MISMATCH if its first card does not belong
 * to the operation, and with DL_TIMEOUT, DL_INTERRUPTED or the reason of an abort. */
dl_status dl_mpi_cards_receive(dl_mpi_meeting *meeting, const dl_op_context *op,
                               const dl_mpi_partner *from, size_t *at);

/* Starts to send the message that lies `at` bytes into the buffer; its first
 * card has its length. */
dl_status dl_mpi_cards_send(dl_mpi_meeting *meeting, int to, size_t at);

/* Waits until MPI has completed all sends. */
dl_status dl_mpi_cards_sent(dl_mpi_meeting *meeting, const dl_op_context *op);

/* Tell another rank by an empty message that this one goes on with the operation, and
 * wait for such a message.  Until `bound_until` neither the deadline nor a signal nor
 * an abort ends that wait. */
dl_status dl_mpi_cards_send_go(dl_mpi_meeting *meeting, int to);
dl_status dl_mpi_cards_receive_go(dl_mpi_meeting *meeting, const dl_op_context *op,
                                  int from, int64_t bound_until);

/* Ends an operation with `status`, which it returns.  After a failure it tells the
 * other ranks the reason, and cancels whatever MPI could still write to the buffer. */
dl_status dl_mpi_cards_end(dl_mpi_meeting *meeting, dl_status status);

#endif
