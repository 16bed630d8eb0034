/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/swap.h"

/* Rounds into which an array is divided, so that filling and draining overlap, and the
 * bytes of a round at least and at most. */
#define ROUNDS_WANTED 2
#define ROUND_LEAST ((size_t)32 << 10)
#define ROUND_MOST ((size_t)256 << 10)

bool
dl_swap_suits(const dl_board *board)
{
    return board->options.size == 2 && board->header->cores_per_rank > 0;
}

size_t
dl_swap_chunk(size_t size)
{
    size_t wanted = size / ROUNDS_WANTED;
    size_t most = wanted < ROUND_LEAST  ? ROUND_LEAST
                  : wanted > ROUND_MOST ? ROUND_MOST
                                        : wanted;
    size_t rounds = (size + most - 1) / most;

    return dl_round_up((size + rounds - 1) / rounds, DL_LINE);
}

static dl_status
run_round(const dl_swap *self, uint64_t round)
{
    dl_board *board = self->board;
    bool has_next = round + 1 < self->rounds;

    if (has_next && round + 1 >= self->window) {
        DL_TRY(dl_board_wait_steps(board,
                                   dl_board_step_drained(round + 1 - self->window)));
    }
    if (has_next) {
        self->fill(self->context, round + 1);
        dl_board_publish_step(board, dl_board_step_filled(round + 1));
    }
    if (round > 0) {
        DL_TRY(dl_board_wait_steps(board, dl_board_step_filled(round)));
    }
    self->drain(self->context, round);
    if (has_next) {
        dl_board_publish_step(board, dl_board_step_drained(round));
    }
    return DL_OK;
}

dl_status
dl_swap_run(const dl_swap *swap)
{
    uint64_t steps = 2 * (swap->rounds - 1);

    for (uint64_t round = 0; round < swap->rounds; round++) {
        DL_TRY(run_round(swap, round));
    }
    /* All rounds but the last have been drained then: the first round of the next
     * operation uses the other slot. */
    if (steps > 0) {
        DL_TRY(dl_board_wait_steps(swap->board, steps));
    }
    dl_board_end(swap->board, swap->rounds, steps);
    return DL_OK;
}
