/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/pipeline.h"

#include "pg/cpu/algorithms/limits.h"

size_t
dl_pipeline_chunk(const dl_board *board, size_t size)
{
    size_t most = size / DL_PIPELINE_ROUNDS;

    most = most < DL_PIPELINE_ROUND_LEAST ? DL_PIPELINE_ROUND_LEAST : most;
    most = most > DL_PIPELINE_ROUND_MOST ? DL_PIPELINE_ROUND_MOST : most;
    most = most > board->chunk ? board->chunk : most;
    size_t rounds = size == 0 ? 1 : (size + most - 1) / most;
    size_t part = (size + rounds - 1) / rounds;
    return dl_round_up(part == 0 ? 1 : part, DL_LINE);
}

static dl_status
run_pipeline_round(const dl_pipeline *self, uint64_t round)
{
    dl_board *board = self->board;
    bool has_next = round + 1 < self->rounds;

    /* The slot of the next round was last read in the round before this one. */
    if (has_next && round > 0) {
        DL_TRY(dl_board_wait_steps(board, dl_board_step_drained(round - 1)));
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
dl_pipeline_run(const dl_pipeline *pipeline)
{
    uint64_t steps = 2 * (pipeline->rounds - 1);

    for (uint64_t round = 0; round < pipeline->rounds; round++) {
        DL_TRY(run_pipeline_round(pipeline, round));
    }
    /* All rounds but the last have been drained then: the first round of the next
     * operation uses the other slot. */
    if (steps > 0) {
        DL_TRY(dl_board_wait_steps(pipeline->board, steps));
    }
    dl_board_end(pipeline->board, pipeline->rounds, steps);
    return DL_OK;
}
