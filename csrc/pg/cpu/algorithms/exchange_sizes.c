/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/exchange_sizes.h"

#include "pg/cpu/operation_text.h"
#include "pg/cpu/shm/failure_check.h"

size_t
dl_exchange_sizes_room(const dl_board *board)
{
    return 2 * (size_t)board->options.size * sizeof(uint64_t);
}

/* Returns the sizes of `rank`: those it sends, by destination, then those it expects,
 * by source. */
static uint64_t *
sizes_of_rank(const dl_board *board, int rank)
{
    return (uint64_t *)(void *)dl_exchange_slot(board, rank, 0);
}

/* Returns true if this rank sends as much to each other rank as it expects from each. */
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

void
dl_exchange_sizes_write(const dl_board *board, const dl_transfer *transfer)
{
    int size = board->options.size;
    dl_exchange_note *own = dl_exchange_note_of(board, transfer->rank);
    size_t block;

    own->is_even =
        transfer->flow == DL_AMONG_ALL && has_even_sizes(transfer, size, &block);
    if (own->is_even) {
        own->block = block;
        return;
    }
    own->room = board->chunk;
    uint64_t *row = sizes_of_rank(board, transfer->rank);
    for (int rank = 0; rank < size; rank++) {
        row[rank] = transfer->size(transfer, transfer->rank, rank);
        row[size + rank] = transfer->expected(transfer, rank);
    }
}

static size_t
size_of_row(const dl_board *board, int rank, int other, int index)
{
    const dl_exchange_note *noted = dl_exchange_note_of(board, rank);

    if (noted->is_even) {
        return rank == other ? 0 : noted->block;
    }
    return sizes_of_rank(board, rank)[index];
}

size_t
dl_exchange_sizes_sent(const dl_board *board, int source, int destination)
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
    const dl_op_context *op = board->op;

    dl_fingerprint_fail_size(&op->fingerprint, dl_failure_check_name(board, source),
                             dl_exchange_sizes_sent(board, source, destination),
                             dl_failure_check_name(board, destination),
                             size_expected(board, source, destination));
    return dl_fail_while(
        "%s", dl_operation_describe(op->fingerprint.op,
                                    dl_failure_check_operation(board, op->sequence),
                                    board->options.group_name)
                  .text);
}

dl_status
dl_exchange_sizes_compare(const dl_board *board)
{
    int size = board->options.size;

    for (int source = 0; source < size; source++) {
        for (int destination = 0; destination < size; destination++) {
            if (dl_exchange_sizes_sent(board, source, destination)
                != size_expected(board, source, destination)) {
                return fail_size(board, source, destination);
            }
        }
    }
    return DL_OK;
}

bool
dl_exchange_sizes_are_even(const dl_board *board)
{
    const dl_exchange_note *first = dl_exchange_note_of(board, 0);

    for (int rank = 0; rank < board->options.size; rank++) {
        const dl_exchange_note *noted = dl_exchange_note_of(board, rank);
        if (!noted->is_even || noted->block != first->block) {
            return false;
        }
    }
    return true;
}
