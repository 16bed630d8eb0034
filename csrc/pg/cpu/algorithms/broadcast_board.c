/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "pg/cpu/algorithms/algorithms.h"

dl_status
dl_broadcast_line(dl_board *board, const dl_op_context *op,
                  const dl_broadcast_args *args)
{
    size_t size = dl_tensor_size(&args->tensor);
    uint8_t *payload = dl_board_begin(board, op);
    bool is_root = board->options.rank == args->root;

    if (is_root && size > 0) {
        memcpy(payload, args->tensor.data, size);
    }
    DL_TRY(dl_board_arrive(board));
    if (!is_root && size > 0) {
        memcpy(args->tensor.data, dl_board_payload(board, args->root), size);
    }
    return DL_OK;
}

/* The array is cut into as many chunks as there are rounds. */
typedef struct pieces {
    uint8_t *data;
    size_t size;
    size_t chunk;
    uint64_t rounds;
} pieces;

static pieces
pieces_of(const dl_tensor *tensor, size_t chunk)
{
    size_t size = dl_tensor_size(tensor);

    return (pieces){tensor->data, size, chunk, (size + chunk - 1) / chunk};
}

static size_t
piece_size(const pieces *all, uint64_t round)
{
    size_t left = all->size - round * all->chunk;

    return left < all->chunk ? left : all->chunk;
}

static void
fill_slot(dl_board *board, const pieces *all, uint64_t round)
{
    memcpy(dl_board_slot(board, board->options.rank, round),
           all->data + round * all->chunk, piece_size(all, round));
}

/* Step k of the root: round k is in its slot, which for round 0 the arrival says.  Step
 * k + 1 of the others: they have copied round k out. */

static dl_status
send_pieces(dl_board *board, const pieces *all)
{
    for (uint64_t round = 1; round < all->rounds; round++) {
        if (round > 1) {
            DL_TRY(dl_board_wait_steps(board, round - 1));
        }
        fill_slot(board, all, round);
        dl_board_publish_step(board, round);
    }
    /* The slot of the round after the last must be free. */
    return all->rounds > 1 ? dl_board_wait_steps(board, all->rounds - 1) : DL_OK;
}

static dl_status
receive_pieces(dl_board *board, const pieces *all, int root)
{
    for (uint64_t round = 0; round < all->rounds; round++) {
        if (round > 0) {
            DL_TRY(dl_board_wait_step(board, root, round));
        }
        memcpy(all->data + round * all->chunk, dl_board_slot(board, root, round),
               piece_size(all, round));
        if (round + 1 < all->rounds) {
            dl_board_publish_step(board, round + 1);
        }
    }
    return DL_OK;
}

dl_status
dl_broadcast_chunks(dl_board *board, const dl_op_context *op,
                    const dl_broadcast_args *args)
{
    pieces all = pieces_of(&args->tensor, board->chunk);
    bool is_root = board->options.rank == args->root;

    dl_board_begin(board, op);
    if (is_root) {
        fill_slot(board, &all, 0);
    }
    DL_TRY(dl_board_arrive(board));
    DL_TRY(is_root ? send_pieces(board, &all)
                   : receive_pieces(board, &all, args->root));
    dl_board_end(board, all.rounds, all.rounds);
    return DL_OK;
}
