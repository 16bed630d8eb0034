/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What each rank writes on its line about the blocks of an exchange that may go through
 * slots, and, in operations in which a rank knows only the sizes of its own blocks, these
 * sizes: the bytes that it sends to and expects from each other rank.  The sizes precede
 * the blocks in the first slot of each rank, unless its note says that all of them are
 * equal: reading the sizes of all ranks takes a time that grows with the square of their
 * number. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_SIZES_H
#define DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_SIZES_H

#include "pg/cpu/algorithms/transfer.h"

typedef enum dl_exchange_offer {
    DL_OFFER_NOTHING = 0,
    DL_OFFER_IN_SLOT,
    DL_OFFER_IN_PLACE,
} dl_exchange_offer;

typedef struct dl_exchange_note {
    uint8_t offer;
    size_t room; /* bytes that a round takes in this rank's slot at most */
    /* In operations in which a rank knows only the sizes of its own blocks: it sends
     * `block` bytes to each other rank, and expects as many from each. */
    bool is_even;
    uint64_t block;
} dl_exchange_note;

_Static_assert(sizeof(dl_exchange_note) <= DL_BOARD_PAYLOAD, "a note fits a line");

/* The payload is const for readers; its owner may write to it before the arrival. */
static inline dl_exchange_note *
dl_exchange_note_of(const dl_board *board, int rank)
{
    return (dl_exchange_note *)(void *)dl_board_payload(board, rank);
}

/* Returns the slot of `rank` in a round. */
static inline uint8_t *
dl_exchange_slot(const dl_board *board, int rank, uint64_t round)
{
    return dl_board_slot(board, rank, round, dl_exchange_note_of(board, rank)->room);
}

/* Returns the bytes that the sizes of one rank take. */
size_t dl_exchange_sizes_room(const dl_board *board);

/* Called before the arrival: writes this rank's sizes; if they are not equal, its rounds
 * take whole slots. */
void dl_exchange_sizes_write(const dl_board *board, const dl_transfer *transfer);

/* The others are called after the arrival.  Returns the bytes that `source` sends to
 * `destination`. */
size_t dl_exchange_sizes_sent(const dl_board *board, int source, int destination);

/* Returns true if all ranks noted the same size. */
bool dl_exchange_sizes_are_even(const dl_board *board);

/* Returns DL_MISMATCH if a rank sends another size than the receiver expects; the text
 * names the two ranks and both sizes, and is the same on all ranks. */
dl_status dl_exchange_sizes_compare(const dl_board *board);

#endif
