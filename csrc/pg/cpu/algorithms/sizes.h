/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What each rank sends to and expects from each other, in bytes, ahead of the blocks in
 * its first slot: for operations in which a rank knows the sizes of its own blocks
 * only. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_SIZES_H
#define DISTLITE_PG_CPU_ALGORITHMS_SIZES_H

#include "pg/cpu/algorithms/exchange.h"

/* Bytes they take. */
size_t dl_sizes_header(const dl_board *board);

/* Before the arrival: this rank's. */
void dl_sizes_write(const dl_board *board, const dl_transfer *transfer);

/* After it.  DL_MISMATCH says who sends what to whom, on all ranks the same. */
dl_status dl_sizes_compare(const dl_board *board);

size_t dl_sizes_sent(const dl_board *board, int source, int destination);

#endif
