/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange_plan.h"

#include "pg/cpu/algorithms/exchange_sizes.h"
#include "pg/cpu/algorithms/pipeline.h"

/* Alignment of blocks: in slots they begin at a cache line; in eager data, which has
 * little room, at a multiple of 8, as every number does, and so do blocks smaller than a
 * cache line, of which ranks that share a core then find several in one line that is in
 * their cache already. */
#define SLOT_UNIT 64
#define SMALL_UNIT 8

size_t
dl_exchange_plan_piece(const dl_exchange *self, size_t size, uint64_t rounds)
{
    size_t share = rounds > 1 ? (size + rounds - 1) / rounds : size;
    bool is_dense = self->place == DL_EAGER || size < SLOT_UNIT;

    return dl_round_up(share, is_dense ? SMALL_UNIT : SLOT_UNIT);
}

/* Returns the bytes that `source` has for `destination`, as far as this rank knows them
 * by now. */
static size_t
size_between(const dl_exchange *self, int source, int destination)
{
    const dl_transfer *transfer = self->transfer;

    if (transfer->expected != NULL && source != transfer->rank) {
        return dl_exchange_sizes_sent(self->board, source, destination);
    }
    return transfer->size(transfer, source, destination);
}

/* Returns whether a rank has one block, and not one for each destination. */
static bool
has_one_block(const dl_exchange *self)
{
    return self->transfer->is_shared || self->transfer->flow == DL_TO_ROOT;
}

/* The senders.  Where all blocks have one size, the plan of one sender is that of all,
 * so that planning takes the same time with any number of ranks. */

static int
first_sender(const dl_exchange *self)
{
    const dl_transfer *transfer = self->transfer;

    switch (transfer->flow) {
    case DL_FROM_ROOT:
        return transfer->root;
    case DL_TO_ROOT:
        return transfer->root == 0 ? 1 : 0;
    default:
        return 0;
    }
}

static int
last_sender(const dl_exchange *self)
{
    bool is_one = self->is_even || self->transfer->flow == DL_FROM_ROOT;

    return is_one ? first_sender(self) : self->board->options.size - 1;
}

/* Sets `block` for an operation whose blocks all have one size: those of a rank for
 * itself may have no place. */
static void
plan_even(dl_exchange *self, size_t block)
{
    int sender = first_sender(self);
    const dl_transfer *transfer = self->transfer;

    self->is_even = true;
    self->block = block;
    self->skips_own = transfer->size(transfer, sender, sender) == 0;
}

/* Returns the offset of block `index` of `source` among its blocks. */
static size_t
offset_of(const dl_exchange *self, int source, int index, uint64_t rounds)
{
    size_t sum = 0;

    if (self->is_even) {
        int before = self->skips_own && index > source ? index - 1 : index;
        return (size_t)before * dl_exchange_plan_piece(self, self->block, rounds);
    }
    for (int i = 0; i < index; i++) {
        sum += dl_exchange_plan_piece(self, size_between(self, source, i), rounds);
    }
    return sum;
}

/* Returns the bytes that the pieces of all blocks of `source` take in a round. */
static size_t
bytes_per_round(const dl_exchange *self, int source, uint64_t rounds)
{
    if (has_one_block(self)) {
        return dl_exchange_plan_piece(
            self, size_between(self, source, self->transfer->root), rounds);
    }
    return offset_of(self, source, self->board->options.size, rounds);
}

/* Returns the bytes of a slot that a round uses, for blocks of `whole` bytes in
 * all.  Where every rank has a core, even blocks that fit a slot are moved in a few
 * rounds, so that one side copies out while the other copies in. */
static size_t
room_of(const dl_exchange *self, size_t whole)
{
    size_t most = self->board->chunk - self->header;

    if (self->board->waiter.spin == 0) {
        return most;
    }
    size_t room = dl_pipeline_chunk(self->board, whole);
    return room < most ? room : most;
}

static uint64_t
rounds_of(const dl_exchange *self, int source)
{
    size_t capacity = self->board->chunk - self->header;
    size_t whole = bytes_per_round(self, source, 1);
    size_t room = room_of(self, whole);
    uint64_t rounds = (whole + room - 1) / room;

    /* Pieces are rounded up, so a few more rounds may be needed. */
    while (rounds > 1 && bytes_per_round(self, source, rounds) > capacity) {
        rounds++;
    }
    return rounds;
}

uint64_t
dl_exchange_plan_rounds(const dl_exchange *self)
{
    uint64_t most = self->transfer->expected != NULL ? 1 : 0;

    for (int rank = first_sender(self); rank <= last_sender(self); rank++) {
        uint64_t rounds = rounds_of(self, rank);
        most = rounds > most ? rounds : most;
    }
    return most;
}

/* Sets `place`.  Every rank must choose the same one before the arrival, so the blocks of
 * each rank have to fit. */
static void
plan_place(dl_exchange *self)
{
    self->place = DL_EAGER;
    for (int rank = first_sender(self); rank <= last_sender(self); rank++) {
        if (bytes_per_round(self, rank, 1) > self->board->eager_size) {
            self->place = DL_IN_SLOT;
            return;
        }
    }
}

/* Returns the rounds that `source` cuts its blocks into: those of the whole operation,
 * if all ranks know them when slots are first filled, or if nothing is copied; else the
 * rounds that its own blocks need. */
static uint64_t
rounds_of_blocks(const dl_exchange *self, int source)
{
    bool is_known = self->transfer->expected == NULL || self->place == DL_IN_PLACE;

    return is_known ? self->rounds : rounds_of(self, source);
}

size_t
dl_exchange_plan_room(const dl_exchange *self)
{
    int rank = self->transfer->rank;

    if (self->transfer->expected != NULL && !self->is_even) {
        return self->board->chunk;
    }
    return self->header + bytes_per_round(self, rank, rounds_of_blocks(self, rank));
}

/* Returns the stream of block `index` of `source`, which is `offset` bytes behind its
 * first one. */
static dl_stream
stream_at(const dl_exchange *self, int source, int index, size_t offset)
{
    int destination = has_one_block(self) ? self->transfer->root : index;
    size_t size = size_between(self, source, destination);

    return (dl_stream){
        .rank = source,
        .index = index,
        .offset = self->header + offset,
        .piece = dl_exchange_plan_piece(self, size, rounds_of_blocks(self, source)),
        .size = size,
    };
}

static void
add_outgoing(dl_exchange *self, dl_stream stream)
{
    const dl_transfer *transfer = self->transfer;
    int input = transfer->input_count == 1 ? 0 : stream.index;

    if (stream.size > 0) {
        stream.tensor = &transfer->inputs[input];
        self->outgoing[self->outgoing_count++] = stream;
    }
}

static bool
is_sender(const dl_exchange *self, int rank)
{
    const dl_transfer *transfer = self->transfer;

    return transfer->flow == DL_AMONG_ALL
           || (rank == transfer->root) == (transfer->flow == DL_FROM_ROOT);
}

/* Takes room for this rank's eager data. */
static void
place_outgoing(dl_exchange *self)
{
    size_t size = bytes_per_round(self, self->transfer->rank, 1);
    uint8_t *data = dl_board_take_eager(self->board, size);

    for (int i = 0; i < self->outgoing_count; i++) {
        self->outgoing[i].data = data + self->outgoing[i].offset;
    }
}

/* Sets the streams that this rank fills. */
static void
plan_outgoing(dl_exchange *self)
{
    int rank = self->transfer->rank;
    size_t offset = 0;

    self->outgoing_count = 0;
    if (!is_sender(self, rank)) {
        return;
    }
    if (has_one_block(self)) {
        add_outgoing(self, stream_at(self, rank, 0, 0));
        return;
    }
    for (int i = 0; i < self->board->options.size; i++) {
        dl_stream stream = stream_at(self, rank, i, offset);
        if (i != rank) {
            add_outgoing(self, stream);
        }
        offset += i == rank && self->skips_own ? 0 : stream.piece;
    }
}

static size_t
add_incoming(dl_exchange *self, int source)
{
    const dl_transfer *transfer = self->transfer;
    int index = has_one_block(self) ? 0 : transfer->rank;
    size_t offset = offset_of(self, source, index, rounds_of_blocks(self, source));
    dl_stream stream = stream_at(self, source, index, offset);

    if (stream.size > 0) {
        stream.tensor = &transfer->outputs[transfer->output_count == 1 ? 0 : source];
        if (self->place == DL_EAGER) {
            size_t all = bytes_per_round(self, source, 1);
            stream.data = dl_board_eager(self->board, source, all) + offset;
        }
        self->incoming[self->incoming_count++] = stream;
    }
    return stream.size;
}

/* Returns about as many bytes as the inputs and outputs of all ranks have, if this
 * rank's outputs have `total`. */
static size_t
arrays_of_all(const dl_exchange *self, size_t total)
{
    const dl_transfer *transfer = self->transfer;
    size_t receivers =
        transfer->flow == DL_TO_ROOT ? 1 : (size_t)self->board->options.size;
    size_t outputs = total * receivers;

    return transfer->is_shared ? outputs : 2 * outputs;
}

/* Begins with the next rank, so that the ranks do not all read from the same one at a
 * time. */
void
dl_exchange_plan_incoming(dl_exchange *self)
{
    const dl_transfer *transfer = self->transfer;
    int size = self->board->options.size;
    bool is_root = transfer->rank == transfer->root;
    size_t total =
        transfer->own_output == NULL ? 0 : dl_tensor_size(transfer->own_output);

    self->incoming_count = 0;
    if (transfer->flow == DL_FROM_ROOT) {
        total += is_root ? 0 : add_incoming(self, transfer->root);
    } else if (transfer->flow == DL_AMONG_ALL || is_root) {
        for (int i = 1; i < size; i++) {
            total += add_incoming(self, (transfer->rank + i) % size);
        }
    }
    self->is_large = arrays_of_all(self, total) > self->cached_limit;
}

/* Sizes that other ranks know as well need no exchange. */
static void
plan_known(dl_exchange *self)
{
    const dl_transfer *transfer = self->transfer;

    if (transfer->is_even) {
        int sender = first_sender(self);
        int receiver = transfer->flow == DL_TO_ROOT
                           ? transfer->root
                           : (sender + 1) % self->board->options.size;
        plan_even(self, transfer->size(transfer, sender, receiver));
    }
    plan_place(self);
    self->rounds = self->place == DL_IN_SLOT ? dl_exchange_plan_rounds(self) : 1;
}

/* Sizes of this rank alone precede its blocks in its slot. */
static void
plan_unknown(dl_exchange *self)
{
    const dl_exchange_note *own =
        dl_exchange_note_of(self->board, self->transfer->rank);

    self->place = DL_IN_SLOT;
    self->header = dl_round_up(dl_exchange_sizes_room(self->board), SLOT_UNIT);
    if (own->is_even) {
        plan_even(self, own->block);
    }
}

void
dl_exchange_plan_begin(dl_exchange *self)
{
    self->header = 0;
    self->is_even = false;
    self->skips_own = false;
    if (self->transfer->expected != NULL) {
        plan_unknown(self);
    } else {
        plan_known(self);
    }
    plan_outgoing(self);
    if (self->place == DL_EAGER && self->outgoing_count > 0) {
        place_outgoing(self);
    }
}
