/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/board.h"

#include <string.h>

#include "pg/cpu/shm/verdict.h"

#define MAGIC UINT64_C(0x315f626c74736964) /* "distlb_1" */

/* Enough for a peer that runs and is about to answer.  After that yielding looks nearly
 * as often if nobody else wants the core, and where the system has put two ranks on one,
 * because other programs are about, it passes them round in a microsecond each: spinning
 * on would make every meeting cost its span, going through a futex ten times that. */
#define SPIN_SPAN (2 * INT64_C(1000))
#define YIELD_SPAN (250 * INT64_C(1000))

static size_t
round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* Slots begin in the middle of a page.  Large arrays begin at the start of one, or a few
 * bytes behind that, and processors that tell addresses apart by their places in a page
 * would find a copy's two sides in conflict. */
static size_t
slots_offset(int size)
{
    size_t per_rank = 2 * sizeof(dl_board_line) + sizeof(dl_board_member);

    return round_up(sizeof(dl_board_header) + (size_t)size * per_rank, 4096) + 2048;
}

size_t
dl_board_memory(int size, size_t chunk)
{
    return slots_offset(size) + (size_t)size * 2 * chunk;
}

void
dl_board_format(void *memory, int size, size_t chunk, bool may_spin)
{
    dl_board_header *header = memory;

    header->magic = MAGIC;
    header->size = (uint32_t)size;
    header->may_spin = may_spin;
    header->chunk = chunk;
}

bool
dl_board_may_spin(const void *memory)
{
    return ((const dl_board_header *)memory)->may_spin != 0;
}

static dl_words
arrivals_of(dl_board_line *lines, int size)
{
    return (dl_words){&lines->sequence, sizeof *lines, size};
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
    *board = (dl_board){.options = *options, .header = header, .chunk = header->chunk};
    board->lines[0] = (dl_board_line *)(void *)(header + 1);
    board->lines[1] = board->lines[0] + size;
    board->members = (dl_board_member *)(void *)(board->lines[1] + size);
    board->arrivals[0] = arrivals_of(board->lines[0], size);
    board->arrivals[1] = arrivals_of(board->lines[1], size);
    board->steps = (dl_words){&board->members->step, sizeof *board->members, size};
    board->slots = (uint8_t *)memory + slots_offset(size);
    board->waiter = (dl_waiter){
        .bell = &header->bell,
        .spin = header->may_spin ? SPIN_SPAN : 0,
        .yield = YIELD_SPAN,
        .check = dl_verdict_check,
        .context = board,
    };
    pthread_mutex_init(&board->lock, NULL);
    return DL_OK;
}

void
dl_board_fini(dl_board *board)
{
    if (board->header != NULL) {
        pthread_mutex_destroy(&board->lock);
    }
    *board = (dl_board){0};
}

bool
dl_board_is_cut(const dl_board *board, int rank)
{
    const dl_board_options *options = &board->options;
    int at = options->lifeline_ranks == NULL ? rank : options->lifeline_ranks[rank];

    return atomic_load(&options->lifelines->is_cut[at]);
}

static dl_board_line *
line_of(const dl_board *board, int rank)
{
    return board->lines[board->op->sequence & 1] + rank;
}

uint8_t *
dl_board_begin(dl_board *board, const dl_op_context *op)
{
    board->op = op;
    dl_board_line *line = line_of(board, board->options.rank);
    line->fingerprint = op->fingerprint;
    return line->payload;
}

dl_status
dl_board_arrive(dl_board *board)
{
    const dl_op_context *op = board->op;
    dl_words arrivals = board->arrivals[op->sequence & 1];
    const dl_board_line *lines = board->lines[op->sequence & 1];

    dl_words_publish(arrivals, board->options.rank, op->sequence, board->waiter.bell);
    DL_TRY(dl_words_wait_all(arrivals, op->sequence, &board->waiter, op->deadline));
    for (int rank = 0; rank < board->options.size; rank++) {
        if (!dl_fingerprint_equal(&lines[rank].fingerprint, &op->fingerprint)) {
            return dl_verdict_mismatch(board, rank);
        }
    }
    /* A peer may have come here, given up, and left its line behind. */
    return dl_verdict_broken(board);
}

const uint8_t *
dl_board_payload(const dl_board *board, int rank)
{
    return line_of(board, rank)->payload;
}

uint8_t *
dl_board_slot(const dl_board *board, int rank, uint64_t round)
{
    size_t parity = (board->round + round) & 1;

    return board->slots + ((size_t)rank * 2 + parity) * board->chunk;
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
