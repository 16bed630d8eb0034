/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sizes of the blocks that each rank sends to and expects from each other one, in
 * bytes.  They precede the blocks in the first slot of each rank, in operations in
 * which a rank knows only the sizes of its own blocks. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_SIZES_H
#define DISTLITE_PG_CPU_ALGORITHMS_SIZES_H

#include "pg/cpu/algorithms/exchange.h"

/* Returns the bytes that the sizes of one rank take. */
size_t dl_sizes_header(const dl_board *board);

/* Called before the arrival: writes this rank's sizes. */
void dl_sizes_write(const dl_board *board, const dl_transfer *transfer);

/* Called after the arrival.  Returns DL_MISMATCH if a rank sends another size than the
 * receiver expects; the text names the two ranks and both sizes, and is the same on all
 * ranks. */
dl_status dl_sizes_compare(const dl_board *board);

/* Called after the arrival: returns the bytes that `source` sends to `destination`. */
size_t dl_sizes_sent(const dl_board *board, int source, int destination);

#endif
