/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"

/* Limits up to which one meeting, after which each rank reduces everything, is faster
 * than three, between which each reduces its share: the work grows with the number of
 * ranks, the cost of a meeting does not.  A meeting takes a fraction of a microsecond
 * where each rank has a core, and a scheduling round where ranks share cores. */
#define SLOT_LIMIT_OF_ALL_RANKS ((size_t)4 << 10)
#define SLOT_LIMIT_WHEN_SHARING ((size_t)16 << 10)

static size_t
slot_limit(const dl_board *board)
{
    return board->header->may_spin
               ? SLOT_LIMIT_OF_ALL_RANKS / (size_t)board->options.size
               : SLOT_LIMIT_WHEN_SHARING;
}

dl_status
dl_all_reduce_select(dl_board *board, const dl_op_context *op,
                     const dl_all_reduce_args *args)
{
    size_t size = dl_tensor_size(&args->tensor);

    if (size <= DL_BOARD_PAYLOAD) {
        return dl_all_reduce_line(board, op, args);
    }
    if (size <= slot_limit(board)) {
        return dl_all_reduce_slot(board, op, args);
    }
    return dl_all_reduce_chunks(board, op, args);
}
