/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The messages in which ranks meet: cards that say what was called, each with an array
 * behind it.  A message is cut into segments that MPI sends at once, its first card says
 * how long it is and is held against what this rank called, so that nothing wrong is ever
 * taken in.  Who waits for long tells what it waits for, and listens to what others tell
 * (mpi_news.h). */
#ifndef DISTLITE_PG_MPI_MPI_CARDS_H
#define DISTLITE_PG_MPI_MPI_CARDS_H

#include "pg/mpi/mpi_meeting.h"
#include "pg/wait_graph.h"

/* What a card has among the flags of its rank's sizes: it goes along a tree. */
#define DL_MPI_ONE_WAY 8

/* Before each array, at a multiple of 8 bytes. */
typedef struct dl_mpi_card {
    dl_fingerprint fingerprint;
    uint32_t sequence; /* these two: their low halves */
    uint32_t digest;
    uint32_t sent; /* bytes of all cards and arrays of this message */
    uint16_t size; /* of the array */
    uint16_t flags;
} dl_mpi_card;

/* Adds the ranks beyond `partner` that have to call the operation before it can end on this
 * rank: the partner may only be slow, while one of them waits for this rank. */
typedef void (*dl_mpi_needed_fn)(const dl_mpi_comm *comm, const dl_op_context *op,
                                 int partner, dl_awaited *awaited);

/* The other side of a message, and of whose cards it is the only way: `count` ranks from
 * `first` on. */
typedef struct dl_mpi_partner {
    int rank;
    int first;
    int count;
    dl_mpi_needed_fn add_needed; /* NULL: nobody else is needed */
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

/* With its array, and up to the next one. */
static inline size_t
dl_mpi_card_size(const dl_mpi_card *card)
{
    return sizeof *card + (((size_t)card->size + 7) & ~(size_t)7);
}

/* This rank's card, first in the buffer and a message by itself; an operation more in the
 * history. */
dl_status dl_mpi_cards_begin(dl_mpi_meeting *meeting, const dl_op_context *op,
                             const dl_mpi_baggage *own);

/* Bytes of the cards of `count` ranks, which lie in the buffer from this rank's on; notes
 * where each begins. */
size_t dl_mpi_cards_measure(dl_mpi_meeting *meeting, int count);

/* Makes ready for a message, whose bytes will lie `at` bytes in the buffer. */
dl_status dl_mpi_cards_expect(dl_mpi_meeting *meeting, int from, size_t at);

/* What is expected already, after which `at` is its end. */
dl_status dl_mpi_cards_receive(dl_mpi_meeting *meeting, const dl_op_context *op,
                               const dl_mpi_partner *from, size_t *at);

/* What lies `at` bytes in the buffer, as long as its first card says. */
dl_status dl_mpi_cards_send(dl_mpi_meeting *meeting, int to, size_t at);

/* Until MPI has taken all that was sent. */
dl_status dl_mpi_cards_sent(dl_mpi_meeting *meeting, const dl_op_context *op);

/* That this rank goes on with the operation; an empty message.  `bound_until`: when to look
 * at the deadline and at signals again. */
dl_status dl_mpi_cards_send_go(dl_mpi_meeting *meeting, int to);
dl_status dl_mpi_cards_receive_go(dl_mpi_meeting *meeting, const dl_op_context *op,
                                  int from, int64_t bound_until);

/* Of an operation that ends with `status`, which it returns: after a failure nothing may
 * come into the buffer any more. */
dl_status dl_mpi_cards_end(dl_mpi_meeting *meeting, dl_status status);

#endif
