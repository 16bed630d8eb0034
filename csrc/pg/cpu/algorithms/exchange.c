/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange.h"

#include <stdlib.h>

#include "pg/cpu/algorithms/sizes.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

/* Blocks begin on whole lines of the cache, on a rank's own line where any number is
 * well aligned. */
#define SLOT_UNIT 64
#define LINE_UNIT 8

/* Where every rank has a core, even what fits a slot goes in a few rounds, so that one
 * side copies out while the other copies in; less than this is not worth a meeting. */
#define ROUNDS_WANTED 4
#define ROUND_LEAST ((size_t)16 << 10)

/* More than a rank's second-level cache, and its share of the third. */
#define LARGE ((size_t)4 << 20)

dl_status
dl_exchange_init(dl_exchange *exchange, dl_board *board)
{
    size_t count = (size_t)board->options.size;

    *exchange = (dl_exchange){
        .board = board,
        .outgoing = calloc(count, sizeof *exchange->outgoing),
        .incoming = calloc(count, sizeof *exchange->incoming),
    };
    if (exchange->outgoing == NULL || exchange->incoming == NULL) {
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
    *exchange = (dl_exchange){0};
}

static size_t
round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* The whole of a block in one round, or its share of each. */
static size_t
piece_of(const dl_exchange *self, size_t size, uint64_t rounds)
{
    size_t share = rounds > 1 ? (size + rounds - 1) / rounds : size;

    return round_up(share, self->is_on_line ? LINE_UNIT : SLOT_UNIT);
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

static int
block_count(const dl_exchange *self)
{
    return self->transfer->is_shared ? 1 : self->board->options.size;
}

/* Bytes that `source` has for `destination`, as far as this rank knows by now. */
static size_t
size_between(const dl_exchange *self, int source, int destination)
{
    const dl_transfer *transfer = self->transfer;

    if (transfer->expected != NULL && source != transfer->rank) {
        return dl_sizes_sent(self->board, source, destination);
    }
    return transfer->size(transfer, source, destination);
}

/* Bytes that all pieces of `source` take in a round. */
static size_t
filling(const dl_exchange *self, int source, uint64_t rounds)
{
    size_t sum = 0;

    for (int i = 0; i < block_count(self); i++) {
        sum += piece_of(self, size_between(self, source, i), rounds);
    }
    return sum;
}

/* Of a round. */
static size_t
room_of(const dl_exchange *self, size_t whole)
{
    size_t capacity = self->board->chunk - self->header;

    if (self->board->waiter.spin == 0) {
        return capacity;
    }
    size_t room = whole / ROUNDS_WANTED;
    room = room > ROUND_LEAST ? room : ROUND_LEAST;
    return room < capacity ? room : capacity;
}

static uint64_t
rounds_of(const dl_exchange *self, int source)
{
    size_t capacity = self->board->chunk - self->header;
    size_t whole = filling(self, source, 1);
    size_t room = room_of(self, whole);
    uint64_t rounds = (whole + room - 1) / room;

    /* Pieces are rounded up, so that it may take a few more. */
    while (rounds > 1 && filling(self, source, rounds) > capacity) {
        rounds++;
    }
    return rounds;
}

static uint64_t
most_rounds(const dl_exchange *self)
{
    uint64_t most = self->transfer->expected != NULL ? 1 : 0;

    for (int rank = 0; rank < self->board->options.size; rank++) {
        uint64_t rounds = rounds_of(self, rank);
        most = rounds > most ? rounds : most;
    }
    return most;
}

/* On lines if everybody's blocks fit there, as everybody must know beforehand. */
static void
choose_line(dl_exchange *self)
{
    self->is_on_line = true;
    for (int rank = 0; rank < self->board->options.size && self->is_on_line; rank++) {
        self->is_on_line = filling(self, rank, 1) <= DL_BOARD_PAYLOAD;
    }
}

/* Rounds that `source` cuts its blocks into: those of the whole operation, where
 * everybody knows them in time. */
static uint64_t
cut_of(const dl_exchange *self, int source)
{
    return self->transfer->expected != NULL ? rounds_of(self, source) : self->rounds;
}

/* Of `source`'s block for `destination`. */
static dl_stream
stream_between(const dl_exchange *self, int source, int destination)
{
    uint64_t rounds = cut_of(self, source);
    size_t offset = self->header;
    int index = self->transfer->is_shared ? 0 : destination;

    for (int i = 0; i < index; i++) {
        offset += piece_of(self, size_between(self, source, i), rounds);
    }
    size_t size = size_between(self, source, index);
    return (dl_stream){
        .rank = source,
        .offset = offset,
        .piece = piece_of(self, size, rounds),
        .size = size,
    };
}

static void
plan_outgoing(dl_exchange *self)
{
    const dl_transfer *transfer = self->transfer;
    int count = block_count(self);

    self->outgoing_count = 0;
    for (int i = 0; i < count; i++) {
        dl_stream stream = stream_between(self, transfer->rank, i);
        bool is_own = !transfer->is_shared && i == transfer->rank;
        if (stream.size > 0 && !is_own) {
            stream.tensor = &transfer->inputs[transfer->input_count == 1 ? 0 : i];
            self->outgoing[self->outgoing_count++] = stream;
        }
    }
}

/* Beginning with the next rank, so that not all read from the same one at a time. */
static void
plan_incoming(dl_exchange *self)
{
    const dl_transfer *transfer = self->transfer;
    int size = self->board->options.size;
    size_t total =
        transfer->own_output == NULL ? 0 : dl_tensor_size(transfer->own_output);

    self->incoming_count = 0;
    for (int i = 1; i < size; i++) {
        int source = (transfer->rank + i) % size;
        dl_stream stream = stream_between(self, source, transfer->rank);
        if (stream.size > 0) {
            stream.tensor =
                &transfer->outputs[transfer->output_count == 1 ? 0 : source];
            self->incoming[self->incoming_count++] = stream;
            total += stream.size;
        }
    }
    self->is_large = total > LARGE;
}

uint8_t *
dl_exchange_blocks(const dl_exchange *exchange, int rank, uint64_t round)
{
    if (!exchange->is_on_line) {
        return dl_board_slot(exchange->board, rank, round);
    }
    /* Readers leave it as it is; the owner may write. */
    return (uint8_t *)dl_board_payload(exchange->board, rank);
}

static void
fill(const dl_exchange *self, uint64_t round)
{
    const double *factor = self->transfer->factor;
    uint8_t *blocks = dl_exchange_blocks(self, self->transfer->rank, round);

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

/* Into `size` bytes of an output from `start` on. */
static void
put(const dl_exchange *self, const dl_tensor *output, const void *source, size_t start,
    size_t size)
{
    if (self->is_large && output->is_contiguous) {
        dl_copy_past_caches((char *)output->data + start, source, size);
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
    dl_stream own = {.piece = piece_of(self, size, rounds), .size = size};
    size_t start = round * own.piece;
    size_t part = dl_stream_part(&own, round);
    if (transfer->own_input->is_contiguous) {
        put(self, transfer->own_output, (char *)transfer->own_input->data + start,
            start, part);
    } else {
        dl_strided_copy_part(transfer->own_output, transfer->own_input, start, part);
    }
}

/* A rank's steps in a round: it has filled its slot for the next one; it has emptied the
 * others'.  Round 0 is filled before the arrival.  Everybody makes all steps, with or
 * without anything to do. */

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
            uint8_t *blocks = dl_exchange_blocks(self, stream->rank, round);
            put(self, stream->tensor, blocks + stream->offset, round * stream->piece,
                part);
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

    /* The other slot was used one round before, and by the operation's end must be free
     * for the next one's first. */
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
    if (transfer->expected != NULL) {
        self->is_on_line = false;
        self->header = round_up(dl_sizes_header(self->board), SLOT_UNIT);
        dl_sizes_write(self->board, transfer);
    } else {
        choose_line(self);
        self->rounds = self->is_on_line ? 1 : most_rounds(self);
    }
    plan_outgoing(self);
    fill(self, 0);
}

dl_status
dl_exchange_run(dl_exchange *exchange, const dl_op_context *op,
                const dl_transfer *transfer)
{
    dl_board *board = exchange->board;

    exchange->transfer = transfer;
    begin(exchange, op);
    DL_TRY(dl_board_arrive(board));
    if (transfer->expected != NULL) {
        DL_TRY(dl_sizes_compare(board));
        exchange->rounds = most_rounds(exchange);
    }
    plan_incoming(exchange);
    keep_own(exchange, 0);
    for (uint64_t round = 0; round < exchange->rounds; round++) {
        DL_TRY(run_round(exchange, round));
    }
    uint64_t rounds = exchange->is_on_line ? 0 : exchange->rounds;
    dl_board_end(board, rounds, rounds > 1 ? 2 * (rounds - 1) : 0);
    return DL_OK;
}
