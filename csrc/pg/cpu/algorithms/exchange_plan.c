/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange_plan.h"

#include "pg/cpu/algorithms/sizes.h"

/* Alignment of blocks: in slots and pockets they begin at a cache line; on a rank's own
 * line, which has little room, at a multiple of 8, as every number does. */
#define SLOT_UNIT 64
#define LINE_UNIT 8

/* Where every rank has a core, even blocks that fit a slot are moved in a few rounds,
 * so that one side copies out while the other copies in.  A round of fewer bytes than
 * ROUND_LEAST is not worth a meeting. */
#define ROUNDS_WANTED 4
#define ROUND_LEAST ((size_t)16 << 10)

/* Outputs of more bytes are written past the caches: this is more than a rank's
 * second-level cache and its share of the third-level cache. */
#define LARGE ((size_t)4 << 20)

static size_t
round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* A single round moves the whole block. */
size_t
dl_plan_piece(const dl_exchange *self, size_t size, uint64_t rounds)
{
    size_t share = rounds > 1 ? (size + rounds - 1) / rounds : size;

    return round_up(share, self->place == DL_ON_LINE ? LINE_UNIT : SLOT_UNIT);
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

/* Returns the bytes that `source` has for `destination`, as far as this rank knows them
 * by now. */
static size_t
size_between(const dl_exchange *self, int source, int destination)
{
    const dl_transfer *transfer = self->transfer;

    if (transfer->expected != NULL && source != transfer->rank) {
        return dl_sizes_sent(self->board, source, destination);
    }
    return transfer->size(transfer, source, destination);
}

/* Returns the bytes that the pieces of all blocks of `source` take in a round. */
static size_t
filling(const dl_exchange *self, int source, uint64_t rounds)
{
    size_t sum = 0;

    for (int i = 0; i < block_count(self); i++) {
        sum += dl_plan_piece(self, size_between(self, source, i), rounds);
    }
    return sum;
}

/* Returns the bytes of a slot that a round uses, for blocks of `whole` bytes in all. */
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

    /* Pieces are rounded up, so a few more rounds may be needed. */
    while (rounds > 1 && filling(self, source, rounds) > capacity) {
        rounds++;
    }
    return rounds;
}

uint64_t
dl_plan_rounds(const dl_exchange *self)
{
    uint64_t most = self->transfer->expected != NULL ? 1 : 0;

    for (int rank = 0; rank < self->board->options.size; rank++) {
        uint64_t rounds = rounds_of(self, rank);
        most = rounds > most ? rounds : most;
    }
    return most;
}

static bool
fits(dl_exchange *self, dl_place place, size_t room)
{
    self->place = place;
    for (int rank = 0; rank < self->board->options.size; rank++) {
        if (filling(self, rank, 1) > room) {
            return false;
        }
    }
    return true;
}

/* Every rank must choose the same place before the meeting, so the blocks of all ranks
 * have to fit. */
void
dl_plan_place(dl_exchange *self)
{
    if (!fits(self, DL_ON_LINE, DL_BOARD_PAYLOAD)
        && !fits(self, DL_IN_POCKET, DL_BOARD_POCKET)) {
        self->place = DL_IN_SLOT;
    }
}

/* Returns the rounds that `source` cuts its blocks into: those of the whole operation,
 * if all ranks know them when slots are first filled, or if nothing is copied; else the
 * rounds that its own blocks need. */
static uint64_t
cut_of(const dl_exchange *self, int source)
{
    bool is_known = self->transfer->expected == NULL || self->place == DL_IN_PLACE;

    return is_known ? self->rounds : rounds_of(self, source);
}

/* Returns the stream of the block that `source` has for `destination`. */
static dl_stream
stream_between(const dl_exchange *self, int source, int destination)
{
    uint64_t rounds = cut_of(self, source);
    size_t offset = self->header;
    int index = self->transfer->is_shared ? 0 : destination;

    for (int i = 0; i < index; i++) {
        offset += dl_plan_piece(self, size_between(self, source, i), rounds);
    }
    size_t size = size_between(self, source, index);
    return (dl_stream){
        .rank = source,
        .index = index,
        .offset = offset,
        .piece = dl_plan_piece(self, size, rounds),
        .size = size,
    };
}

void
dl_plan_outgoing(dl_exchange *self)
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

/* Begins with the next rank, so that the ranks do not all read from the same one at a
 * time. */
void
dl_plan_incoming(dl_exchange *self)
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

size_t
dl_plan_header(const dl_exchange *self)
{
    return round_up(dl_sizes_header(self->board), SLOT_UNIT);
}
