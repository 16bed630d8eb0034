/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pg/cpu/algorithms/limits.h"
#include "pg/cpu/algorithms/pipeline.h"
#include "pg/cpu/shm/shared.h"
#include "pg/cpu/shm/failure_check.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

/* Alignment of blocks: in slots and eager buffers they begin at a cache line; on a
 * rank's own line, which has little room, at a multiple of 8, as every number does, and
 * so do blocks smaller than a cache line, of which ranks that share a core then find
 * several in one line that is in their cache already. */
#define SLOT_UNIT 64
#define SMALL_UNIT 8

typedef enum offer {
    NOTHING = 0,
    BLOCKS_IN_SLOT,
    BLOCKS_IN_PLACE,
} offer;

/* What a rank writes on its line where blocks may go through slots. */
typedef struct note {
    uint8_t offer;
    /* In operations in which a rank knows only the sizes of its own blocks: it sends
     * `block` bytes to each other rank, and expects as many from each. */
    bool is_even;
    uint64_t block;
} note;

_Static_assert(sizeof(note) <= DL_BOARD_PAYLOAD, "a note fits a line");

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
        .sources = calloc(count, sizeof *exchange->sources),
    };
    if (exchange->outgoing == NULL || exchange->incoming == NULL
        || exchange->writers == NULL || exchange->sources == NULL) {
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
    free(exchange->sources);
    *exchange = (dl_exchange){0};
}

static note *
note_of(const dl_board *board, int rank)
{
    /* The payload is const for readers; its owner may write to it before the
     * arrival. */
    return (note *)(void *)dl_board_payload(board, rank);
}

/* The sizes of the blocks that each rank sends to and expects from each other one, in
 * bytes, in operations in which a rank knows only the sizes of its own blocks.  They
 * precede the blocks in the first slot of each rank, unless its note says that all of
 * them are equal: reading the rows of all ranks takes a time that grows with the square
 * of their number. */

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

/* Returns true if this rank sends as much to each other rank as it expects from each.
 * */
static bool
has_even_sizes(const dl_transfer *transfer, int size, size_t *block)
{
    int rank = transfer->rank;

    *block = size > 1 ? transfer->size(transfer, rank, (rank + 1) % size) : 0;
    for (int other = 0; other < size; other++) {
        if (other != rank
            && (transfer->size(transfer, rank, other) != *block
                || transfer->expected(transfer, other) != *block)) {
            return false;
        }
    }
    return true;
}

/* Called before the arrival: writes this rank's sizes. */
static void
write_sizes(const dl_board *board, const dl_transfer *transfer)
{
    int size = board->options.size;
    note *own = note_of(board, transfer->rank);
    size_t block;

    own->is_even =
        transfer->flow == DL_AMONG_ALL && has_even_sizes(transfer, size, &block);
    if (own->is_even) {
        own->block = block;
        return;
    }
    uint64_t *row = row_of(board, transfer->rank);
    for (int rank = 0; rank < size; rank++) {
        row[rank] = transfer->size(transfer, transfer->rank, rank);
        row[size + rank] = transfer->expected(transfer, rank);
    }
}

static size_t
size_of_row(const dl_board *board, int rank, int other, int index)
{
    const note *noted = note_of(board, rank);

    if (noted->is_even) {
        return rank == other ? 0 : noted->block;
    }
    return row_of(board, rank)[index];
}

/* Called after the arrival: returns the bytes that `source` sends to `destination`, and
 * those that `destination` expects from it. */
static size_t
size_sent(const dl_board *board, int source, int destination)
{
    return size_of_row(board, source, destination, destination);
}

static size_t
size_expected(const dl_board *board, int source, int destination)
{
    return size_of_row(board, destination, source, board->options.size + source);
}

static dl_status
fail_size(const dl_board *board, int source, int destination)
{
    const dl_fingerprint *fingerprint = &board->op->fingerprint;
    char sent[DL_FINGERPRINT_SIZE_TEXT_SIZE];
    char expected[DL_FINGERPRINT_SIZE_TEXT_SIZE];

    dl_fingerprint_describe_size(fingerprint, size_sent(board, source, destination),
                                 sent);
    dl_fingerprint_describe_size(fingerprint, size_expected(board, source, destination),
                                 expected);
    return dl_fail(DL_MISMATCH,
                   "%s #%" PRIu64 " in group %.100s: rank %d has %s for rank %d, which "
                   "expects %s",
                   dl_op_type_name(fingerprint->op),
                   dl_failure_check_operation(board, board->op->sequence),
                   board->options.group_name, dl_failure_check_name(board, source),
                   sent, dl_failure_check_name(board, destination), expected);
}

/* Called after the arrival.  Returns DL_MISMATCH if a rank sends another size than the
 * receiver expects; the text names the two ranks and both sizes, and is the same on all
 * ranks. */
static dl_status
compare_sizes(const dl_board *board)
{
    int size = board->options.size;

    for (int source = 0; source < size; source++) {
        for (int destination = 0; destination < size; destination++) {
            if (size_sent(board, source, destination)
                != size_expected(board, source, destination)) {
                return fail_size(board, source, destination);
            }
        }
    }
    return DL_OK;
}

/* Called after the arrival: returns true if all ranks noted the same size. */
static bool
are_sizes_even(const dl_board *board)
{
    const note *first = note_of(board, 0);

    for (int rank = 0; rank < board->options.size; rank++) {
        const note *noted = note_of(board, rank);
        if (!noted->is_even || noted->block != first->block) {
            return false;
        }
    }
    return true;
}

/* The plan: where the blocks are, and in how many rounds they are moved.  Every rank
 * computes the same plan from the sizes that it knows. */

/* Returns the bytes of a block of `size` that are moved in each of `rounds`, rounded up
 * to the alignment of the place.  A single round moves the whole block. */
static size_t
plan_piece(const dl_exchange *self, size_t size, uint64_t rounds)
{
    size_t share = rounds > 1 ? (size + rounds - 1) / rounds : size;
    bool is_dense = self->place == DL_ON_LINE || size < SLOT_UNIT;

    return dl_round_up(share, is_dense ? SMALL_UNIT : SLOT_UNIT);
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
        return (size_t)before * plan_piece(self, self->block, rounds);
    }
    for (int i = 0; i < index; i++) {
        sum += plan_piece(self, size_between(self, source, i), rounds);
    }
    return sum;
}

/* Returns the bytes that the pieces of all blocks of `source` take in a round. */
static size_t
bytes_per_round(const dl_exchange *self, int source, uint64_t rounds)
{
    if (has_one_block(self)) {
        return plan_piece(self, size_between(self, source, self->transfer->root),
                          rounds);
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

/* Returns the rounds of the whole operation through slots. */
static uint64_t
plan_rounds(const dl_exchange *self)
{
    uint64_t most = self->transfer->expected != NULL ? 1 : 0;

    for (int rank = first_sender(self); rank <= last_sender(self); rank++) {
        uint64_t rounds = rounds_of(self, rank);
        most = rounds > most ? rounds : most;
    }
    return most;
}

static bool
fits_place(dl_exchange *self, dl_place place, size_t room)
{
    self->place = place;
    for (int rank = first_sender(self); rank <= last_sender(self); rank++) {
        if (bytes_per_round(self, rank, 1) > room) {
            return false;
        }
    }
    return true;
}

/* Returns the bytes that a rank may put into its eager buffer.  Eager buffers are reused
 * only after many operations, which helps ranks that go on without waiting for all
 * others; but by then they have left the caches, and their first use takes a page fault
 * each.  Where ranks share cores, sparing a meeting is worth that, but if all meet
 * anyway, two slots that stay in the caches take less time. */
static size_t
room_of_eager_buffer(const dl_exchange *self)
{
    if (self->board->waiter.spin > 0) {
        return DL_EXCHANGE_EAGER_LIMIT;
    }
    return self->transfer->flow == DL_AMONG_ALL ? 0 : self->board->eager_size;
}

/* Sets `place`: on lines if the blocks of each rank fit one, else in eager buffers if
 * they fit one, else in slots.  Every rank must choose the same place before the
 * meeting, so the blocks of all ranks have to fit. */
static void
plan_place(dl_exchange *self)
{
    if (!fits_place(self, DL_ON_LINE, DL_BOARD_PAYLOAD)
        && !fits_place(self, DL_IN_EAGER_BUFFER, room_of_eager_buffer(self))) {
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
rounds_of_blocks(const dl_exchange *self, int source)
{
    bool is_known = self->transfer->expected == NULL || self->place == DL_IN_PLACE;

    return is_known ? self->rounds : rounds_of(self, source);
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
        .piece = plan_piece(self, size, rounds_of_blocks(self, source)),
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

/* Sets the streams that this rank empties.  Begins with the next rank, so that the
 * ranks do not all read from the same one at a time. */
static void
plan_incoming(dl_exchange *self)
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

/* Returns the bytes of a slot that precede its blocks where sizes come first. */
static size_t
plan_header(const dl_exchange *self)
{
    return dl_round_up(sizes_header(self->board), SLOT_UNIT);
}

/* Blocks that are in shared memory already are not copied into slots: their rank notes
 * that, and writes their places into its slot, which then has no blocks.  The other
 * ranks read them there as if it were the slot: piece by piece while blocks of other
 * ranks go through slots, else at once.  At the end each such rank waits until all have
 * read. */

static offer
offer_of(const dl_exchange *self, int rank)
{
    return (offer)note_of(self->board, rank)->offer;
}

/* Returns the places of the blocks of `rank`, by the blocks' index. */
static dl_shared_place *
places_of(const dl_exchange *self, int rank)
{
    uint8_t *slot = dl_board_slot(self->board, rank, 0);

    return (dl_shared_place *)(void *)(slot + self->header);
}

static bool
pays_in_place(const dl_exchange *self)
{
    size_t least =
        self->board->waiter.spin > 0 ? DL_EXCHANGE_IN_PLACE_LEAST : self->board->chunk;
    size_t sum = 0;

    for (int i = 0; i < self->outgoing_count; i++) {
        sum += self->outgoing[i].size;
    }
    return sum >= least && self->header + places_size(self) <= self->board->chunk;
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
    note *own = note_of(self->board, self->transfer->rank);

    if (self->outgoing_count == 0) {
        own->offer = NOTHING;
    } else {
        self->is_sharing = self->board->options.views != NULL
                           && self->transfer->factor == NULL && pays_in_place(self)
                           && write_places(self);
        own->offer = self->is_sharing ? BLOCKS_IN_PLACE : BLOCKS_IN_SLOT;
    }
}

/* Called after the arrival: counts the ranks whose blocks stay in shared
 * memory.  Returns whether no rank has blocks in its slot. */
static bool
spares_slots(dl_exchange *self)
{
    bool needs_slots = false;

    for (int rank = 0; rank < self->board->options.size; rank++) {
        offer offered = offer_of(self, rank);
        self->sharers += offered == BLOCKS_IN_PLACE;
        needs_slots |= offered == BLOCKS_IN_SLOT;
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
    case DL_IN_EAGER_BUFFER:
        return dl_board_eager_buffer(self->board, rank);
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
    dl_stream own = {.piece = plan_piece(self, size, rounds), .size = size};
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
run_round(dl_exchange *self, uint64_t round)
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
    const dl_transfer *transfer = self->transfer;

    dl_board_begin(self->board, op);
    self->header = 0;
    self->sharers = 0;
    self->is_sharing = false;
    self->is_even = false;
    self->skips_own = false;
    if (transfer->expected != NULL) {
        self->place = DL_IN_SLOT;
        self->header = plan_header(self);
        write_sizes(self->board, transfer);
        if (note_of(self->board, transfer->rank)->is_even) {
            plan_even(self, note_of(self->board, transfer->rank)->block);
        }
    } else {
        if (transfer->is_even) {
            int sender = first_sender(self);
            int receiver = transfer->flow == DL_TO_ROOT
                               ? transfer->root
                               : (sender + 1) % self->board->options.size;
            plan_even(self, transfer->size(transfer, sender, receiver));
        }
        plan_place(self);
        self->rounds = self->place == DL_IN_SLOT ? plan_rounds(self) : 1;
    }
    plan_outgoing(self);
    if (self->place == DL_IN_SLOT) {
        offer_blocks(self);
    }
    fill_place(self, 0);
}

/* Arrives at the operation.  On lines and in eager buffers it waits only for ranks that
 * have a block for this one, in slots for all. */
static dl_status
arrive(const dl_exchange *self)
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

    if (is_uneven && !are_sizes_even(self->board)) {
        self->is_even = false;
        self->skips_own = false;
        DL_TRY(compare_sizes(self->board));
    }
    if (self->place != DL_IN_SLOT) {
        plan_incoming(self);
        return DL_OK;
    }
    if (spares_slots(self)) {
        self->place = DL_IN_PLACE;
        self->rounds = 1;
    } else if (is_uneven) {
        self->rounds = plan_rounds(self);
    }
    plan_incoming(self);
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
    DL_TRY(arrive(exchange));
    DL_TRY(plan_after_arrival(exchange));
    keep_own(exchange, 0);
    for (uint64_t round = 0; round < exchange->rounds; round++) {
        DL_TRY(run_round(exchange, round));
    }
    return end_exchange(exchange);
}
