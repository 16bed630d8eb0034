/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"

dl_status
dl_barrier_line(dl_board *board, const dl_op_context *op)
{
    dl_board_begin(board, op);
    return dl_board_arrive(board);
}
