/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The algorithms of the collectives among ranks of one host.  Each is a plain function
 * over a board; the operation's context has its sequence number, fingerprint and
 * deadline.  Tensors are contiguous and aligned, unless said otherwise.  After a
 * failure the board is in the middle of the operation, and the caller breaks it
 * (dl_board_break). */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_ALGORITHMS_H
#define DISTLITE_PG_CPU_ALGORITHMS_ALGORITHMS_H

#include "pg/call.h"
#include "pg/cpu/algorithms/exchange.h"
#include "pg/cpu/shm/board.h"
#include "pg/cpu/shm/shared.h"

/* Runs one of the algorithms below, chosen by the size of the array and the number of
 * ranks. */
dl_status dl_all_reduce_select(dl_board *board, const dl_op_context *op,
                               const dl_call *call);

/* Each rank publishes its array on its line, and reduces those of all ranks.  The array
 * has at most DL_BOARD_PAYLOAD bytes. */
dl_status dl_all_reduce_line(dl_board *board, const dl_op_context *op,
                             const dl_call *call);

/* As dl_all_reduce_line(), through slots.  The array has at most `board->chunk`
 * bytes. */
dl_status dl_all_reduce_slot(dl_board *board, const dl_op_context *op,
                             const dl_call *call);

/* Reduces and distributes arrays of any size through slots, chunk after chunk: a
 * reduce-scatter and an all-gather per chunk.  Where the arrays of all ranks are in
 * shared memory, nothing is copied: each rank reduces its share of all arrays, and
 * writes the result to all of them. */
dl_status dl_all_reduce_chunks(dl_board *board, const dl_op_context *op,
                               const dl_call *call);

/* Runs one of the algorithms below, chosen by the size of the array.  Tensors are
 * multiplied already for PREMUL_SUM. */
dl_status dl_scan_select(dl_board *board, const dl_op_context *op, const dl_call *call);

/* Each rank publishes its array, and reduces those of the ranks up to its own: as eager
 * data, and waits only for those ranks, or in its slot, in rounds.  Arrays of any
 * size. */
dl_status dl_scan_direct(dl_board *board, const dl_op_context *op, const dl_call *call);

/* Scans arrays of any size through slots, chunk after chunk.  Each rank computes all
 * prefixes of one share of the chunk, so that the work of a rank does not grow with its
 * number. */
dl_status dl_scan_chunks(dl_board *board, const dl_op_context *op, const dl_call *call);

dl_status dl_barrier_line(dl_board *board, const dl_op_context *op);

/* These take blocks of any size and layout.  Each chooses eager data, slots or
 * shared memory (exchange.h). */
typedef dl_status dl_exchange_fn(dl_exchange *exchange, const dl_op_context *op,
                                 const dl_call *call);

dl_exchange_fn dl_broadcast_board, dl_all_gather_board, dl_gather_board;
dl_exchange_fn dl_scatter_board, dl_all_to_all_board;

/* As above, but the blocks that arrive are reduced, in the order of the ranks: at the
 * root, or on each rank those for its own block.  The root's tensor, and `own`, which
 * takes the place of the rank's own input block, are contiguous and aligned, and are
 * multiplied already for PREMUL_SUM. */
dl_exchange_fn dl_reduce_board;
dl_status dl_reduce_scatter_board(dl_exchange *exchange, const dl_op_context *op,
                                  const dl_call *call, const dl_tensor *own);

#endif
