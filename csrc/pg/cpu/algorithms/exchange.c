/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pg/cpu/shm/shared.h"
#include "pg/cpu/shm/verdict.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

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

/* Least bytes that are offered in place, where each rank has a core: copying fewer
 * takes less time than the additional meeting at the end.  Where ranks share cores, and
 * a meeting takes a scheduling round, the limit is a whole slot. */
#define OFFER_LEAST ((size_t)8 << 10)

/* The first byte of a rank's line. */
typedef enum offer {
    NOTHING = 0,
    BLOCKS_IN_SLOT,
    BLOCKS_IN_PLACE,
} offer;

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

/* The sizes of the blocks that each rank sends to and expects from each other one, in
 * bytes.  They precede the blocks in the first slot of each rank, in operations in
 * which a rank knows only the sizes of its own blocks. */

/* Returns the bytes that the sizes of one rank take. */
static size_t
sizes_header(const dl_board *board)
{
    return 2 * (size_t)board->options.size * sizeof(uint64_t);
}

/* Returns the sizes of `rank`: those it sends, by destination, then those it expects,
 * by source. */
static uint64_t *
row_of(const dl_board *board, int rank)
{
    return (uint64_t *)(void *)dl_board_slot(board, rank, 0);
}

/* Called before the arrival: writes this rank's sizes. */
static void
write_sizes(const dl_board *board, const dl_transfer *transfer)
{
    int size = board->options.size;
    uint64_t *row = row_of(board, transfer->rank);

    for (int rank = 0; rank < size; rank++) {
        row[rank] = transfer->size(transfer, transfer->rank, rank);
        row[size + rank] = transfer->expected(transfer, rank);
    }
}

/* Called after the arrival: returns the bytes that `source` sends to `destination`. */
static size_t
size_sent(const dl_board *board, int source, int destination)
{
    return row_of(board, source)[destination];
}

static dl_status
fail_size(const dl_board *board, int source, int destination)
{
    const dl_fingerprint *fingerprint = &board->op->fingerprint;
    int size = board->options.size;
    char sent[DL_FINGERPRINT_SIZE_TEXT_SIZE];
    char expected[DL_FINGERPRINT_SIZE_TEXT_SIZE];

    dl_fingerprint_describe_size(fingerprint, row_of(board, source)[destination], sent);
    dl_fingerprint_describe_size(fingerprint, row_of(board, destination)[size + source],
                                 expected);
    return dl_fail(DL_MISMATCH,
                   "%s #%" PRIu64 " in group %.100s: rank %d has %s for rank %d, which "
                   "expects %s",
                   dl_op_type_name(fingerprint->op),
                   dl_verdict_operation(board, board->op->sequence),
                   board->options.group_name, dl_verdict_name(board, source), sent,
                   dl_verdict_name(board, destination), expected);
}

/* Called after the arrival.  Returns DL_MISMATCH if a rank sends another size than the
 * receiver expects; the text names the two ranks and both sizes, and is the same on all
 * ranks. */
static dl_status
compare_sizes(const dl_board *board)
{
    int size = board->options.size;

    for (int source = 0; source < size; source++) {
        const uint64_t *sent = row_of(board, source);
        for (int destination = 0; destination < size; destination++) {
            if (sent[destination] != row_of(board, destination)[size + source]) {
                return fail_size(board, source, destination);
            }
        }
    }
    return DL_OK;
}

/* The plan: where the blocks are, and in how many rounds they are moved.  Every rank
 * computes the same answers from what it knows of the sizes. */

/* Returns the bytes of a block of `size` that are moved in each of `rounds`, rounded up
 * to the alignment of the place.  A single round moves the whole block. */
static size_t
plan_piece(const dl_exchange *self, size_t size, uint64_t rounds)
{
    size_t share = rounds > 1 ? (size + rounds - 1) / rounds : size;

    return dl_round_up(share, self->place == DL_ON_LINE ? LINE_UNIT : SLOT_UNIT);
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
        return size_sent(self->board, source, destination);
    }
    return transfer->size(transfer, source, destination);
}

/* Returns the bytes that the pieces of all blocks of `source` take in a round. */
static size_t
filling(const dl_exchange *self, int source, uint64_t rounds)
{
    size_t sum = 0;

    for (int i = 0; i < block_count(self); i++) {
        sum += plan_piece(self, size_between(self, source, i), rounds);
    }
    return sum;
}

/* Returns the bytes of a slot that a round uses, for blocks of `whole` bytes in all. */
static size_t
room_of(const dl_exchange *self, size_t whole)
{
    size_t capacity = self->capacity - self->header;

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
    size_t capacity = self->capacity - self->header;
    size_t whole = filling(self, source, 1);
    size_t room = room_of(self, whole);
    uint64_t rounds = (whole + room - 1) / room;

    /* Pieces are rounded up, so a few more rounds may be needed. */
    while (rounds > 1 && filling(self, source, rounds) > capacity) {
        rounds++;
    }
    return rounds;
}

/* Returns the rounds of the whole operation through slots. */
static uint64_t
plan_rounds(const dl_exchange *self)
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

/* Sets `place`: on lines if the blocks of each rank fit one, else in pockets if they fit
 * one, else in slots.  Every rank must choose the same place before the meeting, so the
 * blocks of all ranks have to fit. */
static void
plan_place(dl_exchange *self)
{
    if (!fits(self, DL_ON_LINE, DL_BOARD_PAYLOAD)
        && !fits(self, DL_IN_POCKET, DL_BOARD_POCKET)) {
        self->place = DL_IN_SLOT;
    }
}

/* Returns the bytes that the places of the blocks of one rank take in its slot. */
static size_t
places_size(const dl_exchange *self)
{
    return (size_t)self->board->options.size * sizeof(dl_shared_place);
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

/* Called when all ranks know all sizes. */
static void
divide_slots(dl_exchange *self)
{
    size_t most = places_size(self);

    for (int rank = 0; rank < self->board->options.size; rank++) {
        size_t sum = filling(self, rank, cut_of(self, rank));
        most = sum > most ? sum : most;
    }
    self->window = dl_board_divide_slots(self->board, self->header + most);
}

/* Returns the stream of the block that `source` has for `destination`. */
static dl_stream
stream_between(const dl_exchange *self, int source, int destination)
{
    uint64_t rounds = cut_of(self, source);
    size_t offset = self->header;
    int index = self->transfer->is_shared ? 0 : destination;

    for (int i = 0; i < index; i++) {
        offset += plan_piece(self, size_between(self, source, i), rounds);
    }
    size_t size = size_between(self, source, index);
    return (dl_stream){
        .rank = source,
        .index = index,
        .offset = offset,
        .piece = plan_piece(self, size, rounds),
        .size = size,
    };
}

/* Sets the streams that this rank fills. */
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

/* Sets the streams that this rank empties.  Begins with the next rank, so that the ranks do not all read from the same one at a
 * time. */
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

/* Returns the bytes of a slot that precede its blocks where sizes come first. */
static size_t
plan_header(const dl_exchange *self)
{
    return dl_round_up(sizes_header(self->board), SLOT_UNIT);
}

/* Blocks that are in shared memory already are not copied into slots.  Their rank says
 * so on its line, which is unused while blocks go through slots, and writes their
 * places into its slot, where no blocks are.  The other ranks read them there as if it
 * were the slot: piece by piece while blocks of other ranks go through slots, else at
 * once.  At the end each such rank waits until all have read. */

static offer
offer_of(const dl_exchange *self, int rank)
{
    return (offer)*dl_board_payload(self->board, rank);
}

/* Returns the places of the blocks of `rank`, by the blocks' index. */
static dl_shared_place *
places_of(const dl_exchange *self, int rank)
{
    uint8_t *slot = dl_board_slot(self->board, rank, 0);

    return (dl_shared_place *)(void *)(slot + self->header);
}

static bool
is_worth_it(const dl_exchange *self)
{
    size_t least = self->board->waiter.spin > 0 ? OFFER_LEAST : self->board->chunk;
    size_t sum = 0;

    for (int i = 0; i < self->outgoing_count; i++) {
        sum += self->outgoing[i].size;
    }
    return sum >= least && self->header + places_size(self) <= self->capacity;
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

/* Called before the arrival, when the outgoing streams are known: offers this rank's
 * blocks in place, if all of them are in shared memory and it is worth while. */
static void
offer_blocks(dl_exchange *self)
{
    /* The payload is const for readers; its owner may write to it before the
     * arrival. */
    uint8_t *line = (uint8_t *)dl_board_payload(self->board, self->transfer->rank);

    self->is_sharing = self->board->options.views != NULL
                       && self->transfer->factor == NULL && is_worth_it(self)
                       && write_places(self);
    offer given = self->is_sharing ? BLOCKS_IN_PLACE : BLOCKS_IN_SLOT;
    *line = (uint8_t)(self->outgoing_count == 0 ? NOTHING : given);
}

/* Called after the arrival: counts the ranks that offer their blocks in place.  Returns
 * whether all ranks that send anything do. */
static bool
count_sharers(dl_exchange *self)
{
    bool needs_slots = false;

    for (int rank = 0; rank < self->board->options.size; rank++) {
        offer offered = offer_of(self, rank);
        self->sharers += offered == BLOCKS_IN_PLACE;
        needs_slots |= offered == BLOCKS_IN_SLOT;
    }
    return self->sharers > 0 && !needs_slots;
}

/* Sets `data` of the incoming streams whose ranks offer their blocks in place; maps the
 * memory when it is first used. */
static dl_status
locate_blocks(dl_exchange *self)
{
    dl_shared_views *views = self->board->options.views;

    for (int i = 0; i < self->incoming_count; i++) {
        dl_stream *stream = &self->incoming[i];
        if (offer_of(self, stream->rank) == BLOCKS_IN_PLACE) {
            const dl_shared_place *place =
                &places_of(self, stream->rank)[stream->index];
            DL_TRY(dl_shared_views_map(views, place, stream->size, &stream->data));
        }
    }
    return DL_OK;
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
        if (factor == NULL) {
            dl_slot_gather(&self->board->writer, place, tensor, round * stream->piece,
                           part);
        } else {
            dl_strided_gather_part(place, tensor, round * stream->piece, part);
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
    dl_stream own = {.piece = plan_piece(self, size, rounds), .size = size};
    size_t start = round * own.piece;
    size_t part = dl_stream_part(&own, round);
    if (transfer->own_input->is_contiguous) {
        put(self, transfer->own_output, (char *)transfer->own_input->data + start,
            start, part);
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

    /* The memory of the next round was last read `window` rounds before it. */
    if (has_next && round + 1 >= self->window) {
        DL_TRY(dl_board_wait_steps(board,
                                   dl_board_step_drained(round + 1 - self->window)));
    }
    if (has_next) {
        fill(self, round + 1);
        dl_board_publish_step(board, dl_board_step_filled(round + 1));
        keep_own(self, round + 1);
    }
    DL_TRY(drain(self, round));
    if (has_next) {
        dl_board_publish_step(board, dl_board_step_drained(round));
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
    self->window = 2;
    self->capacity = self->board->chunk;
    if (transfer->expected != NULL) {
        self->place = DL_IN_SLOT;
        if (self->board->waiter.spin > 0) {
            self->capacity = dl_board_begin_in_slots(self->board);
        }
        self->header = plan_header(self);
        write_sizes(self->board, transfer);
    } else {
        plan_place(self);
        self->rounds = self->place == DL_IN_SLOT ? plan_rounds(self) : 1;
        if (self->place == DL_IN_SLOT) {
            divide_slots(self);
        }
    }
    plan_outgoing(self);
    if (self->place == DL_IN_SLOT) {
        offer_blocks(self);
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
        DL_TRY(compare_sizes(self->board));
    }
    if (self->place == DL_IN_SLOT && count_sharers(self)) {
        self->place = DL_IN_PLACE;
        self->rounds = 1;
    } else if (is_uneven) {
        self->rounds = plan_rounds(self);
        if (self->board->waiter.spin > 0 && self->rounds > 1) {
            divide_slots(self);
        }
    }
    plan_incoming(self);
    return self->sharers > 0 ? locate_blocks(self) : DL_OK;
}

/* All rounds but the last have been emptied then, since the first round of the next
 * operation uses the other slot.  A rank whose blocks stayed in shared memory waits
 * until all ranks have read them. */
static dl_status
end(dl_exchange *self)
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
    begin(exchange, op);
    DL_TRY(meet(exchange));
    DL_TRY(expect(exchange));
    keep_own(exchange, 0);
    for (uint64_t round = 0; round < exchange->rounds; round++) {
        DL_TRY(run_round(exchange, round));
    }
    return end(exchange);
}
