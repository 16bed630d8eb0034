/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange.h"

#include <stdlib.h>

#include "pg/cpu/algorithms/exchange_plan.h"
#include "pg/cpu/algorithms/exchange_sizes.h"
#include "pg/cpu/algorithms/limits.h"
#include "pg/cpu/shm/shared.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

dl_status
dl_exchange_init(dl_exchange *exchange, dl_board *board)
{
    size_t count = (size_t)board->options.size;

    *exchange = (dl_exchange){
        .board = board,
        .cached_limit = dl_copy_cached_limit(),
        .outgoing = calloc(count, sizeof *exchange->outgoing),
        .incoming = calloc(count, sizeof *exchange->incoming),
        .writers = calloc(count, sizeof *exchange->writers),
    };
    if (exchange->outgoing == NULL || exchange->incoming == NULL
        || exchange->writers == NULL) {
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
    free(exchange->writers);
    *exchange = (dl_exchange){0};
}

/* Returns the bytes that the places of the blocks of one rank take in its slot. */
static size_t
places_size(const dl_exchange *self)
{
    return (size_t)self->board->options.size * sizeof(dl_shared_place);
}

/* Blocks that are in shared memory already are not copied into slots: their rank notes
 * that, and writes their places into its slot, which then has no blocks.  The other
 * ranks read them there as if it were the slot: piece by piece while blocks of other
 * ranks go through slots, else at once.  At the end each such rank waits until all have
 * read. */

static dl_exchange_offer
offer_of(const dl_exchange *self, int rank)
{
    return (dl_exchange_offer)dl_exchange_note_of(self->board, rank)->offer;
}

/* Returns the places of the blocks of `rank`, by the blocks' index. */
static dl_shared_place *
places_of(const dl_exchange *self, int rank)
{
    uint8_t *slot = dl_exchange_slot(self->board, rank, 0);

    return (dl_shared_place *)(void *)(slot + self->header);
}

static bool
pays_in_place(const dl_exchange *self, size_t room)
{
    size_t least =
        self->board->waiter.spin > 0 ? DL_EXCHANGE_IN_PLACE_LEAST : self->board->chunk;
    size_t sum = 0;

    for (int i = 0; i < self->outgoing_count; i++) {
        sum += self->outgoing[i].size;
    }
    return sum >= least && self->header + places_size(self) <= room;
}

/* Returns false when a block is not in shared memory, or is not plain: then all are
 * copied. */
static bool
write_places(const dl_exchange *self)
{
    const dl_shared_views *views = self->board->options.views;
    dl_shared_place *places = places_of(self, self->transfer->rank);

    for (int i = 0; i < self->outgoing_count; i++) {
        const dl_stream *stream = &self->outgoing[i];
        if (!dl_tensor_is_plain(stream->tensor)) {
            return false;
        }
        dl_shared_place place =
            dl_shared_find(views->arena, stream->tensor->data, stream->size);
        if (place.size == 0) {
            return false;
        }
        places[stream->index] = place;
    }
    return true;
}

/* Called before the arrival, when the outgoing streams are known: notes where this
 * rank's blocks are.  They stay in shared memory if all of them are there and are large
 * enough to pay for it. */
static void
offer_blocks(dl_exchange *self)
{
    dl_exchange_note *own = dl_exchange_note_of(self->board, self->transfer->rank);

    if (self->outgoing_count == 0) {
        own->offer = DL_OFFER_NOTHING;
    } else {
        own->room = dl_exchange_plan_room(self);
        self->is_sharing = self->board->options.views != NULL
                           && self->transfer->factor == NULL
                           && pays_in_place(self, own->room) && write_places(self);
        own->offer = self->is_sharing ? DL_OFFER_IN_PLACE : DL_OFFER_IN_SLOT;
    }
}

/* Called after the arrival: counts the ranks whose blocks stay in shared
 * memory.  Returns whether no rank has blocks in its slot. */
static bool
spares_slots(dl_exchange *self)
{
    bool needs_slots = false;

    for (int rank = 0; rank < self->board->options.size; rank++) {
        dl_exchange_offer offered = offer_of(self, rank);
        self->sharers += offered == DL_OFFER_IN_PLACE;
        needs_slots |= offered == DL_OFFER_IN_SLOT;
    }
    return !needs_slots;
}

/* Sets `data` of the incoming streams whose ranks offer their blocks in place; maps the
 * memory when it is first used. */
static dl_status
locate_blocks(dl_exchange *self)
{
    dl_shared_views *views = self->board->options.views;

    for (int i = 0; i < self->incoming_count; i++) {
        dl_stream *stream = &self->incoming[i];
        if (offer_of(self, stream->rank) == DL_OFFER_IN_PLACE) {
            const dl_shared_place *place =
                &places_of(self, stream->rank)[stream->index];
            DL_TRY(dl_shared_views_map(views, place, stream->size, &stream->data));
        }
    }
    return DL_OK;
}

size_t
dl_stream_part(const dl_stream *stream, uint64_t round)
{
    size_t start = round * stream->piece;

    if (start >= stream->size) {
        return 0;
    }
    size_t left = stream->size - start;
    return left < stream->piece ? left : stream->piece;
}

uint8_t *
dl_exchange_part(const dl_exchange *exchange, const dl_stream *stream, uint64_t round)
{
    return stream->data != NULL ? stream->data + round * stream->piece
                                : dl_exchange_slot(exchange->board, stream->rank, round)
                                      + stream->offset;
}

/* Where ranks share cores, some of the receivers find a slot's lines in the cache of
 * the writer's own core, and others do not; so each has a writer, which finds out. */
static dl_slot_writer *
writer_for(const dl_exchange *self, const dl_stream *stream)
{
    const dl_transfer *transfer = self->transfer;

    if (transfer->is_shared) {
        return &self->board->writer;
    }
    return &self->writers[transfer->flow == DL_TO_ROOT ? transfer->root
                                                       : stream->index];
}

static void
fill_place(const dl_exchange *self, uint64_t round)
{
    const double *factor = self->transfer->factor;

    if (self->is_sharing) {
        return;
    }
    for (int i = 0; i < self->outgoing_count; i++) {
        const dl_stream *stream = &self->outgoing[i];
        const dl_tensor *tensor = stream->tensor;
        uint8_t *place = dl_exchange_part(self, stream, round);
        size_t part = dl_stream_part(stream, round);
        if (factor == NULL) {
            dl_slot_gather(writer_for(self, stream), place, tensor,
                           round * stream->piece, part);
        } else {
            dl_strided_gather_part(place, tensor, round * stream->piece, part);
            dl_reduce_scale(place, tensor->dtype, place, part / tensor->item_size,
                            *factor);
        }
    }
}

/* Copies `source` to the `size` bytes of an output that begin at `start`. */
static void
copy_to_output(const dl_exchange *self, const dl_tensor *output, const void *source,
               size_t start, size_t size)
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
    dl_stream own = {.piece = dl_exchange_plan_piece(self, size, rounds), .size = size};
    size_t start = round * own.piece;
    size_t part = dl_stream_part(&own, round);
    if (transfer->own_input->is_contiguous) {
        copy_to_output(self, transfer->own_output,
                       (char *)transfer->own_input->data + start, start, part);
    } else {
        dl_strided_copy_part(transfer->own_output, transfer->own_input, start, part);
    }
}

static dl_status
wait_filled(const dl_exchange *self, const dl_stream *stream, uint64_t round)
{
    return round == 0 ? DL_OK
                      : dl_board_wait_step(self->board, stream->rank,
                                           dl_board_step_filled(round));
}

static dl_status
drain_round(dl_exchange *self, uint64_t round)
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
            copy_to_output(self, stream->tensor, dl_exchange_part(self, stream, round),
                           round * stream->piece, part);
        }
    }
    if (transfer->drain != NULL && self->incoming_count > 0) {
        transfer->drain(self, round);
    }
    return DL_OK;
}

static dl_status
run_exchange_round(dl_exchange *self, uint64_t round)
{
    dl_board *board = self->board;
    bool has_next = round + 1 < self->rounds;

    /* The slot of the next round was last read in the round before this one. */
    if (has_next && round > 0) {
        DL_TRY(dl_board_wait_steps(board, dl_board_step_drained(round - 1)));
    }
    if (has_next) {
        fill_place(self, round + 1);
        dl_board_publish_step(board, dl_board_step_filled(round + 1));
        keep_own(self, round + 1);
    }
    DL_TRY(drain_round(self, round));
    if (has_next) {
        dl_board_publish_step(board, dl_board_step_drained(round));
    }
    return DL_OK;
}

static void
begin_exchange(dl_exchange *self, const dl_op_context *op)
{
    dl_board_begin(self->board, op);
    self->sharers = 0;
    self->is_sharing = false;
    if (self->transfer->expected != NULL) {
        dl_exchange_sizes_write(self->board, self->transfer);
    }
    dl_exchange_plan_begin(self);
    if (self->place == DL_IN_SLOT) {
        offer_blocks(self);
    }
    fill_place(self, 0);
}

/* Arrives at the operation.  For eager data it waits only for ranks that have a block
 * for this one, for slots for all. */
static dl_status
arrive_with_blocks(const dl_exchange *self)
{
    const dl_transfer *transfer = self->transfer;
    dl_flow flow = self->place == DL_IN_SLOT ? DL_AMONG_ALL : transfer->flow;
    bool is_root = transfer->rank == transfer->root;

    if (flow == DL_AMONG_ALL || (flow == DL_TO_ROOT && is_root)) {
        return dl_board_arrive(self->board);
    }
    if (flow == DL_TO_ROOT || is_root) {
        return dl_board_announce(self->board);
    }
    return dl_board_await(self->board, transfer->root, transfer->root);
}

/* Called after the arrival: finds the incoming blocks and the number of rounds. */
static dl_status
plan_after_arrival(dl_exchange *self)
{
    bool is_uneven = self->transfer->expected != NULL;

    if (is_uneven && !dl_exchange_sizes_are_even(self->board)) {
        self->is_even = false;
        self->skips_own = false;
        DL_TRY(dl_exchange_sizes_compare(self->board));
    }
    if (self->place != DL_IN_SLOT) {
        dl_exchange_plan_incoming(self);
        return DL_OK;
    }
    if (spares_slots(self)) {
        self->place = DL_IN_PLACE;
        self->rounds = 1;
    } else if (is_uneven) {
        self->rounds = dl_exchange_plan_rounds(self);
    }
    dl_exchange_plan_incoming(self);
    return locate_blocks(self);
}

/* All rounds but the last have been emptied then, since the first round of the next
 * operation uses the other slot.  A rank whose blocks stayed in shared memory waits
 * until all ranks have read them. */
static dl_status
end_exchange(dl_exchange *self)
{
    dl_board *board = self->board;
    bool has_slots = self->place == DL_IN_SLOT || self->place == DL_IN_PLACE;
    uint64_t rounds = has_slots ? self->rounds : 0;
    uint64_t steps = rounds > 1 ? 2 * (rounds - 1) : 0;

    if (rounds > 1) {
        DL_TRY(dl_board_wait_steps(board, dl_board_step_drained(rounds - 2)));
    }
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
    begin_exchange(exchange, op);
    DL_TRY(arrive_with_blocks(exchange));
    DL_TRY(plan_after_arrival(exchange));
    keep_own(exchange, 0);
    for (uint64_t round = 0; round < exchange->rounds; round++) {
        DL_TRY(run_exchange_round(exchange, round));
    }
    return end_exchange(exchange);
}
