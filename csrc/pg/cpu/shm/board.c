/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/board.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pg/cpu/shm/failure_check.h"
#include "pg/cpu/shm/segment.h"

#define MAGIC UINT64_C(0x395f626c74736964) /* "distlb_9" */

/* The spin suffices for a peer that is running and about to answer.  After that,
 * yielding polls nearly as often if no other thread wants the core.  Where the system
 * has put two ranks on one core because other programs are running, yielding switches
 * between them in about a microsecond: spinning on would add its whole span to every
 * arrival, and a futex costs ten times as much. */
#define SPIN_SPAN (2 * INT64_C(1000))
#define YIELD_SPAN (250 * INT64_C(1000))

static size_t
eager_offset(int size)
{
    size_t per_rank = DL_BOARD_LINES * sizeof(dl_board_line) + sizeof(dl_board_member);

    return sizeof(dl_board_header) + (size_t)size * per_rank;
}

/* The largest eager buffer: fewer bytes where many ranks have many of them, and where
 * each rank has a core, which spares less by going on without the others. */
#define EAGER_SIZE_WITH_CORES ((size_t)4 << 10)

static size_t
largest_eager_size(int size)
{
    return (size_t)(size <= 16 ? 16 : size <= 64 ? 8 : 4) << 10;
}

/* The extra line keeps the blocks of several ranks from mapping to the same cache
 * sets. */
static size_t
eager_step(size_t eager_size)
{
    return DL_BOARD_EAGER_BLOCKS * eager_size + DL_LINE;
}

/* Slots begin in the middle of a page.  Large arrays begin at the
 * start of a page or a few bytes after it, and processors that compare addresses by
 * their offset in the page would take the two sides of a copy for conflicting ones. */
#define PAGE ((size_t)4096)
#define MIDDLE (PAGE / 2)

static size_t
slots_offset(int size)
{
    size_t eager = (size_t)size * eager_step(largest_eager_size(size));

    return dl_round_up(eager_offset(size) + eager, PAGE) + MIDDLE;
}

size_t
dl_board_memory(int size, size_t chunk)
{
    return slots_offset(size) + (size_t)size * 2 * chunk;
}

void
dl_board_format(void *memory, int size, size_t chunk, int cores_per_rank)
{
    dl_board_header *header = memory;

    header->magic = MAGIC;
    header->size = (uint32_t)size;
    header->cores_per_rank = (uint32_t)cores_per_rank;
    header->chunk = chunk;
}

/* The members come before the lines, which are many. */
static dl_board_member *
members_of(void *memory)
{
    return (dl_board_member *)(void *)((dl_board_header *)memory + 1);
}

size_t
dl_board_head(int size)
{
    return sizeof(dl_board_header) + (size_t)size * sizeof(dl_board_member);
}

void
dl_board_refuse(void *memory, int rank, const char *reason)
{
    dl_board_member *member = &members_of(memory)[rank];

    snprintf(member->reason, sizeof member->reason, "%.*s", DL_BOARD_REASON_SIZE - 1,
             reason);
    atomic_store(&member->state, DL_ABORTED);
}

int
dl_board_cores_per_rank(const void *memory)
{
    return (int)((const dl_board_header *)memory)->cores_per_rank;
}

static dl_words
arrivals_of(dl_board_line *lines, int size)
{
    return (dl_words){&lines->sequence, sizeof *lines, size};
}

/* Used only where each rank has a core of its own. */
static void
note_yielding(void *context, int rank, bool begins)
{
    dl_board *board = context;
    int self = board->options.rank;
    dl_core_mark *own = &board->members[self].core_mark;

    if (begins) {
        dl_core_sharing_begin(&board->sharing, own, &board->members[rank].core_mark,
                              self > rank);
    } else {
        dl_core_sharing_end(own);
    }
}

dl_status
dl_board_init(dl_board *board, const dl_board_options *options, void *memory,
              size_t memory_size)
{
    dl_board_header *header = memory;
    int size = options->size;

    if (memory_size < sizeof *header || header->magic != MAGIC
        || header->size != (uint32_t)size || header->chunk % DL_LINE != 0
        || memory_size < dl_board_memory(size, header->chunk)) {
        return dl_fail(DL_PROTOCOL,
                       "the shared memory of group %s has another layout: the ranks "
                       "run different versions of distlite",
                       options->group_name);
    }
    uint8_t **sources = calloc((size_t)size, sizeof *sources);
    if (sources == NULL) {
        return dl_fail_no_memory();
    }
    *board = (dl_board){.options = *options,
                        .header = header,
                        .chunk = header->chunk,
                        .sources = sources};
    board->members = members_of(memory);
    dl_board_line *line = (dl_board_line *)(void *)(board->members + size);
    for (int i = 0; i < DL_BOARD_LINES; i++, line += size) {
        board->lines[i] = line;
        board->arrivals[i] = arrivals_of(line, size);
    }
    board->eager_blocks = (uint8_t *)memory + eager_offset(size);
    board->eager_size =
        header->cores_per_rank > 0 ? EAGER_SIZE_WITH_CORES : largest_eager_size(size);
    board->eager_step = eager_step(board->eager_size);
    board->steps = (dl_words){&board->members->step, sizeof *board->members, size};
    board->slots = (uint8_t *)memory + slots_offset(size);
    board->waiter = (dl_waiter){
        .bell = &header->bell,
        .spin = header->cores_per_rank > 0 ? SPIN_SPAN : 0,
        .yield = YIELD_SPAN,
        .check = dl_failure_check_run,
        .context = board,
        .yielding = header->cores_per_rank > 0 ? note_yielding : NULL,
        .sleeps_on = &board->sleeps_on,
    };
    pthread_mutex_init(&board->lock, NULL);
    return DL_OK;
}

void
dl_board_fini(dl_board *board)
{
    if (board->header != NULL) {
        pthread_mutex_destroy(&board->lock);
        free(board->sources);
    }
    *board = (dl_board){0};
}

/* The most ranks whose board is populated: with more it would take longer than the
 * group takes to be made. */
#define MOST_RANKS_POPULATED 8

/* The lines, and the two blocks that each rank begins with. */
void
dl_board_populate(const dl_board *board)
{
    int size = board->options.size;

    if (size > MOST_RANKS_POPULATED) {
        return;
    }
    dl_segment_populate(board->header, eager_offset(size));
    for (int rank = 0; rank < size; rank++) {
        dl_segment_populate(board->eager_blocks + (size_t)rank * board->eager_step,
                            2 * EAGER_SIZE_WITH_CORES);
    }
}

static dl_board_line *
line_of(const dl_board *board, int rank)
{
    return board->lines[board->begun % DL_BOARD_LINES] + rank;
}

uint8_t *
dl_board_begin(dl_board *board, const dl_op_context *op)
{
    board->op = op;
    board->begun++;
    board->sequences[board->begun % DL_BOARD_LINES] = op->sequence;
    dl_board_line *line = line_of(board, board->options.rank);
    line->fingerprint = op->fingerprint;
    return line->payload;
}

static dl_words
arrivals_in(const dl_board *board, uint64_t operation)
{
    return board->arrivals[operation % DL_BOARD_LINES];
}

static uint64_t
sequence_in(const dl_board *board, uint64_t operation)
{
    return board->sequences[operation % DL_BOARD_LINES];
}

static bool
is_equal(const dl_board *board, uint64_t operation, int rank)
{
    const dl_board_line *lines = board->lines[operation % DL_BOARD_LINES];

    return dl_fingerprint_equal(&lines[rank].fingerprint,
                                &lines[board->options.rank].fingerprint);
}

static dl_status
compare_with(const dl_board *board, uint64_t operation, int rank)
{
    return is_equal(board, operation, rank)
               ? DL_OK
               : dl_failure_check_unequal(board, operation, rank);
}

/* Compares all operations that all ranks have begun and this rank has not compared. */
static dl_status
compare_operations(dl_board *board)
{
    for (; board->compared < board->begun_by_all; board->compared++) {
        for (int rank = 0; rank < board->options.size; rank++) {
            DL_TRY(compare_with(board, board->compared + 1, rank));
        }
    }
    return DL_OK;
}

static void
publish_arrival(dl_board *board)
{
    dl_words_publish(arrivals_in(board, board->begun), board->options.rank,
                     board->op->sequence, board->waiter.bell);
}

dl_status
dl_board_arrive(dl_board *board)
{
    const dl_op_context *op = board->op;

    publish_arrival(board);
    DL_TRY(dl_words_wait_all(arrivals_in(board, board->begun), op->sequence,
                             &board->waiter, op->deadline));
    board->begun_by_all = board->begun;
    DL_TRY(dl_op_check_arrays(op));
    DL_TRY(compare_operations(board));
    /* A peer may have reached this operation and given up, leaving its line behind. */
    return dl_failure_check_broken(board);
}

/* Returns the last operation that all ranks have begun, of the few that are inspected:
 * the current one, the one needed, and one in between. */
static uint64_t
find_begun_by_all(const dl_board *board)
{
    uint64_t operations[] = {board->begun, board->begun - DL_BOARD_AHEAD / 2,
                             board->begun + 1 - DL_BOARD_AHEAD};

    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (dl_words_have_reached(arrivals_in(board, operations[i]),
                                  sequence_in(board, operations[i]))) {
            return operations[i];
        }
    }
    return board->begun_by_all;
}

/* Makes sure that the line of the next operation may be reused.  A rank that has to
 * wait waits until all have used up half of what it is ahead, so that it stops once in
 * as many operations and not in each while the slowest rank goes on one by one. */
static dl_status
reserve_next_line(dl_board *board)
{
    if (board->begun < DL_BOARD_AHEAD
        || board->begun_by_all > board->begun - DL_BOARD_AHEAD) {
        return DL_OK;
    }
    board->begun_by_all = find_begun_by_all(board);
    if (board->begun_by_all <= board->begun - DL_BOARD_AHEAD) {
        uint64_t wanted = board->begun - DL_BOARD_AHEAD / 2;
        DL_TRY(dl_words_wait_all(arrivals_in(board, wanted), sequence_in(board, wanted),
                                 &board->waiter, board->op->deadline));
        DL_TRY(dl_op_check_arrays(board->op));
        board->begun_by_all = wanted;
    }
    return compare_operations(board);
}

dl_status
dl_board_announce(dl_board *board)
{
    publish_arrival(board);
    DL_TRY(dl_failure_check_broken(board));
    return reserve_next_line(board);
}

dl_status
dl_board_await(dl_board *board, int first, int last)
{
    const dl_op_context *op = board->op;

    publish_arrival(board);
    DL_TRY(dl_words_wait_range(arrivals_in(board, board->begun), first, last,
                               op->sequence, &board->waiter, op->deadline));
    DL_TRY(dl_op_check_arrays(op));
    for (int rank = first; rank <= last; rank++) {
        DL_TRY(compare_with(board, board->begun, rank));
    }
    DL_TRY(dl_failure_check_broken(board));
    return reserve_next_line(board);
}

static bool
has_arrived(const dl_board *board, uint64_t operation, int rank)
{
    return atomic_load(dl_words_at(arrivals_in(board, operation), rank))
           >= sequence_in(board, operation);
}

/* Reads whether the rank is gone before whether it has come, because it may do both in
 * between. */
static dl_status
verify_with(const dl_board *board, uint64_t operation, int rank, dl_deadline deadline)
{
    for (;;) {
        bool is_gone = dl_board_has_ended(board, rank)
                       || atomic_load(&board->members[rank].state) != DL_STAYING;
        if (has_arrived(board, operation, rank)) {
            return is_equal(board, operation, rank)
                       ? DL_OK
                       : dl_failure_check_mismatch(board, operation, rank);
        }
        if (is_gone || dl_deadline_passed(deadline)) {
            return DL_OK;
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, DL_MILLISECOND)));
    }
}

dl_status
dl_board_verify_calls(dl_board *board, dl_deadline deadline)
{
    for (uint64_t operation = board->compared + 1; operation <= board->begun;
         operation++) {
        for (int rank = 0; rank < board->options.size; rank++) {
            dl_status status = verify_with(board, operation, rank, deadline);
            if (status == DL_MISMATCH) {
                dl_op_context op = {.sequence = sequence_in(board, operation)};
                dl_board_break(board, &op);
            }
            DL_TRY(status);
        }
    }
    return DL_OK;
}

/* A rank that has begun an operation has read what others had for the operations before
 * it.  If all ranks have begun the previous operation, only the current block may have
 * something unread.  Otherwise the next block in order is used, which is free when it
 * comes up: its last use is DL_BOARD_AHEAD operations ago, or it was read before this
 * rank began to run ahead; except for the block that was left then. */
static void
change_eager_block(dl_board *board)
{
    uint64_t before = board->begun - 1;
    size_t current = board->eager_block;
    bool all_keep_up = board->begun_by_all >= before
                       || dl_words_have_reached(arrivals_in(board, before),
                                                sequence_in(board, before));

    board->eager_filled = 0;
    if (all_keep_up) {
        board->eager_left = current;
        board->eager_block = current == 0 ? 1 : 0;
        return;
    }
    size_t next = (current + 1) % DL_BOARD_EAGER_BLOCKS;
    board->eager_block =
        next == board->eager_left ? (next + 1) % DL_BOARD_EAGER_BLOCKS : next;
}

uint8_t *
dl_board_take_eager(dl_board *board, size_t size)
{
    size_t span = dl_round_up(size, DL_LINE);
    uint8_t *payload = line_of(board, board->options.rank)->payload;

    if (size <= DL_BOARD_PAYLOAD) {
        return payload;
    }
    if (board->eager_filled + span > board->eager_size) {
        change_eager_block(board);
    }
    uint64_t start = board->eager_block * board->eager_size + board->eager_filled;
    memcpy(payload, &start, sizeof start);
    board->eager_filled += span;
    return dl_board_eager(board, board->options.rank, size);
}

uint8_t *
dl_board_eager(const dl_board *board, int rank, size_t size)
{
    uint8_t *payload = line_of(board, rank)->payload;
    uint64_t start;

    if (size <= DL_BOARD_PAYLOAD) {
        return payload;
    }
    memcpy(&start, payload, sizeof start);
    return board->eager_blocks + (size_t)rank * board->eager_step + start;
}

const uint8_t *
dl_board_payload(const dl_board *board, int rank)
{
    return line_of(board, rank)->payload;
}

/* Smaller parts are always at the start of a slot: they stay in the first-level cache. */
#define LEAST_PART ((size_t)8 << 10)

/* Bytes of all slots that are used in parts. */
#define MOST_OF_PARTS ((size_t)8 << 20)

/* Rounds after which one more part is used: a program's first ones touch few pages. */
#define ROUNDS_PER_PART 256

/* Larger parts begin with two: with one, both slots stay in the second-level cache of the
 * core that read them, which costs a hundred rounds more time than the pages of a second
 * part do.  Smaller ones gain less than that. */
#define MOST_OF_ONE_PART ((size_t)128 << 10)

/* Lines that have left the cache of the core that read them are written again in half
 * the time, so the rounds use one part of the slots after the other.  The two slots
 * alternate in any case: which part a round uses does not matter for the order of writing
 * and reading. */
static size_t
part_of_round(const dl_board *board, uint64_t number, size_t size)
{
    size_t share = MOST_OF_PARTS / 2 / (size_t)board->options.size;
    size_t part = dl_round_up(size, PAGE);
    uint64_t count = dl_min_size(board->chunk, share) / part;
    uint64_t used = (part > MOST_OF_ONE_PART ? 2 : 1) + number / ROUNDS_PER_PART;

    count = count < used ? count : used;
    return count < 2 ? 0 : (size_t)(number / 2 % count) * part;
}

uint8_t *
dl_board_slot(const dl_board *board, int rank, uint64_t round, size_t size)
{
    uint64_t number = board->round + round;
    bool has_parts = size >= LEAST_PART && board->header->cores_per_rank > 0;
    size_t offset = has_parts ? part_of_round(board, number, size) : 0;

    return board->slots + ((size_t)rank * 2 + (number & 1)) * board->chunk + offset;
}

void
dl_board_publish_step(dl_board *board, uint64_t step)
{
    dl_words_publish(board->steps, board->options.rank, board->last_step + step,
                     board->waiter.bell);
}

dl_status
dl_board_wait_steps(dl_board *board, uint64_t step)
{
    return dl_words_wait_all(board->steps, board->last_step + step, &board->waiter,
                             board->op->deadline);
}

dl_status
dl_board_wait_step(dl_board *board, int rank, uint64_t step)
{
    return dl_words_wait_one(board->steps, rank, board->last_step + step,
                             &board->waiter, board->op->deadline);
}

void
dl_board_end(dl_board *board, uint64_t rounds, uint64_t steps)
{
    board->round += rounds;
    board->last_step += steps;
}

/* Ranks that wait for a single rank sleep on a word of that rank: its arrival at this
 * operation, or its steps. */
static void
wake_peers(dl_board *board)
{
    dl_bell *bell = board->waiter.bell;

    dl_words_wake(bell, NULL);
    for (int rank = 0; rank < board->options.size; rank++) {
        if (dl_bell_has_sleepers_for(bell, rank)) {
            dl_futex_wake(
                dl_words_at(board->arrivals[board->begun % DL_BOARD_LINES], rank));
            dl_futex_wake(dl_words_at(board->steps, rank));
        }
    }
}

/* The first rank to claim the board writes its cause; later causes are dropped.  If
 * that rank dies before it has finished, the board is not broken, but all ranks find
 * that its process has ended. */
void
dl_board_break(dl_board *board, const dl_op_context *op)
{
    dl_board_header *header = board->header;
    uint32_t nobody = 0;
    uint32_t self = (uint32_t)board->options.rank + 1;

    if (!atomic_compare_exchange_strong(&header->breaker, &nobody, self)) {
        return;
    }
    dl_error message = dl_failure_check_message(board, op, dl_last_error());
    header->broken_at = op->sequence;
    header->status = message.status;
    memcpy(header->text, message.text, sizeof header->text);
    atomic_store(&header->is_broken, 1);
    wake_peers(board);
}

void
dl_board_wake(dl_board *board)
{
    dl_words_wake(board->waiter.bell, atomic_load(&board->sleeps_on));
}

/* The first state stays: abort and leave may come from different threads. */
static void
write_state(dl_board *board, dl_member_state state, const char *reason)
{
    dl_board_member *member = &board->members[board->options.rank];

    pthread_mutex_lock(&board->lock);
    if (atomic_load(&member->state) == DL_STAYING) {
        snprintf(member->reason, sizeof member->reason, "%.*s",
                 DL_BOARD_REASON_SIZE - 1, reason);
        atomic_store(&member->state, state);
    }
    pthread_mutex_unlock(&board->lock);
}

void
dl_board_abort(dl_board *board, const dl_error *cause)
{
    pthread_mutex_lock(&board->lock);
    bool is_first = !atomic_load(&board->is_aborted);
    if (is_first) {
        board->abort_cause = *cause;
        atomic_store(&board->is_aborted, true);
    }
    pthread_mutex_unlock(&board->lock);
    write_state(board, DL_ABORTED, cause->text);
    dl_board_wake(board);
}

void
dl_board_leave(dl_board *board)
{
    write_state(board, DL_LEFT, "");
}
