/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange.h"

#include <stdlib.h>

#include "pg/cpu/algorithms/exchange_plan.h"
#include "pg/cpu/algorithms/exchange_shared.h"
#include "pg/cpu/algorithms/sizes.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

dl_status
dl_exchange_init(dl_exchange *exchange, dl_board *board)
{
    size_t count = (size_t)board->options.size;

    *exchange = (dl_exchange){
        .board = board,
        .outgoing = calloc(count, sizeof *exchange->outgoing),
        .incoming = calloc(count, sizeof *exchange->incoming),
        .sources = calloc(count, sizeof *exchange->sources),
    };
    if (exchange->outgoing == NULL || exchange->incoming == NULL
        || exchange->sources == NULL) {
        dl_exchange_fini(exchange);
        return dl_fail_no_memory();
    }
    return DL_OK;
}

void
dl_exchange_fini(dl_exchange *exchange)
{
    free(exchange->outgoing);
    free(exchange->incoming);
    free(exchange->sources);
    *exchange = (dl_exchange){0};
}

static uint8_t *
blocks_of(const dl_exchange *self, int rank, uint64_t round)
{
    switch (self->place) {
    case DL_ON_LINE:
        /* The line is const for readers; only its owner writes to it. */
        return (uint8_t *)dl_board_payload(self->board, rank);
    case DL_IN_POCKET:
        return dl_board_pocket(self->board, rank);
    default:
        return dl_board_slot(self->board, rank, round);
    }
}

uint8_t *
dl_exchange_part(const dl_exchange *exchange, const dl_stream *stream, uint64_t round)
{
    return stream->data != NULL
               ? stream->data + round * stream->piece
               : blocks_of(exchange, stream->rank, round) + stream->offset;
}

static void
fill(const dl_exchange *self, uint64_t round)
{
    const double *factor = self->transfer->factor;
    uint8_t *blocks = blocks_of(self, self->transfer->rank, round);

    if (self->is_sharing) {
        return;
    }
    for (int i = 0; i < self->outgoing_count; i++) {
        const dl_stream *stream = &self->outgoing[i];
        const dl_tensor *tensor = stream->tensor;
        uint8_t *place = blocks + stream->offset;
        size_t part = dl_stream_part(stream, round);
        dl_strided_gather_part(place, tensor, round * stream->piece, part);
        if (factor != NULL) {
            dl_reduce_scale(place, tensor->dtype, place, part / tensor->item_size,
                            *factor);
        }
    }
}

/* Copies `source` to the `size` bytes of an output that begin at `start`. */
static void
put(const dl_exchange *self, const dl_tensor *output, const void *source, size_t start,
    size_t size)
{
    if (self->is_large && output->is_contiguous) {
        dl_copy_streaming((char *)output->data + start, source, size);
    } else {
        dl_strided_scatter_part(output, source, start, size);
    }
}

static void
keep_own(const dl_exchange *self, uint64_t round)
{
    const dl_transfer *transfer = self->transfer;

    if (transfer->own_output == NULL
        || transfer->own_output->data == transfer->own_input->data) {
        return;
    }
    size_t size = dl_tensor_size(transfer->own_input);
    uint64_t rounds = self->rounds > 0 ? self->rounds : 1;
    dl_stream own = {.piece = dl_plan_piece(self, size, rounds), .size = size};
    size_t start = round * own.piece;
    size_t part = dl_stream_part(&own, round);
    if (transfer->own_input->is_contiguous) {
        put(self, transfer->own_output, (char *)transfer->own_input->data + start,
            start, part);
    } else {
        dl_strided_copy_part(transfer->own_output, transfer->own_input, start, part);
    }
}

/* In each round but the last a rank publishes two steps: it has filled its slot for the
 * next round; it has emptied the others' slots of this round.  Round 0 is filled before
 * the arrival.  Every rank publishes all steps, even those in which it moves
 * nothing. */

static uint64_t
step_filled(uint64_t round)
{
    return 2 * round - 1;
}

static uint64_t
step_drained(uint64_t round)
{
    return 2 * round + 2;
}

static dl_status
wait_filled(const dl_exchange *self, const dl_stream *stream, uint64_t round)
{
    return round == 0
               ? DL_OK
               : dl_board_wait_step(self->board, stream->rank, step_filled(round));
}

static dl_status
drain(dl_exchange *self, uint64_t round)
{
    const dl_transfer *transfer = self->transfer;

    for (int i = 0; i < self->incoming_count; i++) {
        const dl_stream *stream = &self->incoming[i];
        size_t part = dl_stream_part(stream, round);
        if (part == 0) {
            continue;
        }
        DL_TRY(wait_filled(self, stream, round));
        if (transfer->drain == NULL) {
            put(self, stream->tensor, dl_exchange_part(self, stream, round),
                round * stream->piece, part);
        }
    }
    if (transfer->drain != NULL && self->incoming_count > 0) {
        transfer->drain(self, round);
    }
    return DL_OK;
}

static dl_status
run_round(dl_exchange *self, uint64_t round)
{
    dl_board *board = self->board;
    bool has_next = round + 1 < self->rounds;

    /* The slot of the next round was last read in the round before this one.  The last
     * round waits as well, because the first round of the next operation uses that
     * slot. */
    if (round > 0) {
        DL_TRY(dl_board_wait_steps(board, step_drained(round - 1)));
    }
    if (has_next) {
        fill(self, round + 1);
        dl_board_publish_step(board, step_filled(round + 1));
        keep_own(self, round + 1);
    }
    DL_TRY(drain(self, round));
    if (has_next) {
        dl_board_publish_step(board, step_drained(round));
    }
    return DL_OK;
}

static void
begin(dl_exchange *self, const dl_op_context *op)
{
    const dl_transfer *transfer = self->transfer;

    dl_board_begin(self->board, op);
    self->header = 0;
    self->sharers = 0;
    self->is_sharing = false;
    if (transfer->expected != NULL) {
        self->place = DL_IN_SLOT;
        self->header = dl_plan_header(self);
        dl_sizes_write(self->board, transfer);
    } else {
        dl_plan_place(self);
        self->rounds = self->place == DL_IN_SLOT ? dl_plan_rounds(self) : 1;
    }
    dl_plan_outgoing(self);
    if (self->place == DL_IN_SLOT) {
        dl_exchange_offer(self);
    }
    fill(self, 0);
}

/* Meets the other ranks.  On lines and in pockets it waits only for ranks that have a
 * block for this one, in slots for all. */
static dl_status
meet(const dl_exchange *self)
{
    const dl_transfer *transfer = self->transfer;
    dl_flow flow = self->place == DL_IN_SLOT ? DL_AMONG_ALL : transfer->flow;
    bool is_root = transfer->rank == transfer->root;

    if (flow == DL_AMONG_ALL || (flow == DL_TO_ROOT && is_root)) {
        return dl_board_arrive(self->board);
    }
    return flow == DL_TO_ROOT || is_root ? dl_board_announce(self->board)
                                         : dl_board_await(self->board, transfer->root);
}

/* Called after the meeting: finds the incoming blocks and the number of rounds. */
static dl_status
expect(dl_exchange *self)
{
    bool is_uneven = self->transfer->expected != NULL;

    if (is_uneven) {
        DL_TRY(dl_sizes_compare(self->board));
    }
    if (self->place == DL_IN_SLOT && dl_exchange_is_in_place(self)) {
        self->place = DL_IN_PLACE;
        self->rounds = 1;
    } else if (is_uneven) {
        self->rounds = dl_plan_rounds(self);
    }
    dl_plan_incoming(self);
    return self->sharers > 0 ? dl_exchange_locate(self) : DL_OK;
}

/* A rank whose blocks stayed in shared memory waits until all ranks have read them. */
static dl_status
end(dl_exchange *self)
{
    dl_board *board = self->board;
    bool has_slots = self->place == DL_IN_SLOT || self->place == DL_IN_PLACE;
    uint64_t rounds = has_slots ? self->rounds : 0;
    uint64_t steps = rounds > 1 ? 2 * (rounds - 1) : 0;

    if (self->sharers > 0) {
        dl_board_publish_step(board, ++steps);
    }
    if (self->is_sharing) {
        DL_TRY(dl_board_wait_steps(board, steps));
    }
    dl_board_end(board, rounds, steps);
    return DL_OK;
}

dl_status
dl_exchange_run(dl_exchange *exchange, const dl_op_context *op,
                const dl_transfer *transfer)
{
    exchange->transfer = transfer;
    begin(exchange, op);
    DL_TRY(meet(exchange));
    DL_TRY(expect(exchange));
    keep_own(exchange, 0);
    for (uint64_t round = 0; round < exchange->rounds; round++) {
        DL_TRY(run_round(exchange, round));
    }
    return end(exchange);
}
