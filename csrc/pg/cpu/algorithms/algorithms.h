/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ways to carry out a collective.  Each is a plain function over a board, whose
 * operation says sequence number, fingerprint and deadline; tensors are contiguous and
 * aligned.  A failure leaves the board in the middle of an operation: the caller breaks
 * it. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_ALGORITHMS_H
#define DISTLITE_PG_CPU_ALGORITHMS_ALGORITHMS_H

#include "pg/arguments.h"
#include "pg/cpu/algorithms/exchange.h"
#include "pg/cpu/shm/board.h"
#include "pg/cpu/shm/shared.h"

/* Picks one of those below by size and ranks. */
dl_status dl_all_reduce_select(dl_board *board, const dl_op_context *op,
                               const dl_all_reduce_args *args);

/* Everybody publishes on its line, everybody reduces: DL_BOARD_PAYLOAD bytes at most. */
dl_status dl_all_reduce_line(dl_board *board, const dl_op_context *op,
                             const dl_all_reduce_args *args);

/* The same through slots: a chunk at most. */
dl_status dl_all_reduce_slot(dl_board *board, const dl_op_context *op,
                             const dl_all_reduce_args *args);

/* Reduce-scatter and all-gather through slots, chunk after chunk. */
dl_status dl_all_reduce_chunks(dl_board *board, const dl_op_context *op,
                               const dl_all_reduce_args *args);

/* After the arrival, where all ranks' arrays lie in shared memory: each reduces its share
 * out of all of them, into all of them. */
dl_status dl_all_reduce_shared(dl_board *board, const dl_all_reduce_args *args);

/* Writes into the payload of a line where the array lies, and tells whether in shared
 * memory; how many ranks' do, after the arrival. */
bool dl_shared_announce(dl_board *board, const dl_tensor *tensor, void *payload);
int dl_shared_count(const dl_board *board);

dl_status dl_barrier_line(dl_board *board, const dl_op_context *op);

/* Blocks of any size and layout; each picks line, slot or chunks by itself. */
dl_status dl_broadcast_board(dl_exchange *exchange, const dl_op_context *op,
                             const dl_broadcast_args *args);
dl_status dl_all_gather_board(dl_exchange *exchange, const dl_op_context *op,
                              const dl_all_gather_args *args);
dl_status dl_gather_board(dl_exchange *exchange, const dl_op_context *op,
                          const dl_gather_args *args);
dl_status dl_scatter_board(dl_exchange *exchange, const dl_op_context *op,
                           const dl_scatter_args *args);
dl_status dl_all_to_all_board(dl_exchange *exchange, const dl_op_context *op,
                              const dl_all_to_all_args *args);

/* The same, reducing what arrives: the root the arrays of all others, or each its own
 * block of theirs, in the order of ranks.  The root's tensor, and `own` in place of the
 * rank's own input block, are contiguous and aligned, and multiplied already for
 * PREMUL_SUM. */
dl_status dl_reduce_board(dl_exchange *exchange, const dl_op_context *op,
                          const dl_reduce_args *args);
dl_status dl_reduce_scatter_board(dl_exchange *exchange, const dl_op_context *op,
                                  const dl_reduce_scatter_args *args,
                                  const dl_tensor *own);

#endif
