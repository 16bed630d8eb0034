/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An exchange moves blocks through a board.  Each rank puts the blocks that it has for
 * others side by side into its eager data or into its slot, and takes those for itself
 * from the others'.  Slots are used where the blocks of a rank are too large for eager
 * data.  Blocks too large for a slot are cut into as many pieces as there are rounds; a
 * rank fills its slot for the next round before it empties those of this round, so that
 * copying in and copying out overlap.
 *
 * Where eager data go from or to one rank only, the others do not wait for each other.
 * Blocks that would go through slots, but are in shared memory already, are not copied.
 * Where ranks know only the sizes of their own blocks, each writes one size on its line
 * if they are all equal; otherwise its sizes come first in its slot.  Each rank
 * compares the sizes that are sent with those that are expected. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_H
#define DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_H

#include "pg/cpu/algorithms/transfer.h"

dl_status dl_exchange_init(dl_exchange *exchange, dl_board *board);
void dl_exchange_fini(dl_exchange *exchange);

/* Runs one operation.  After a failure the caller breaks the board. */
dl_status dl_exchange_run(dl_exchange *exchange, const dl_op_context *op,
                          const dl_transfer *transfer);

/* Returns where the stream's part of this round is.  For `drain`. */
uint8_t *dl_exchange_part(const dl_exchange *exchange, const dl_stream *stream,
                          uint64_t round);

/* Returns the size of the stream's part of this round in bytes; the part begins at byte
 * round * piece of the block. */
size_t dl_stream_part(const dl_stream *stream, uint64_t round);

#endif
