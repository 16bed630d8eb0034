/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/sizes.h"

#include <inttypes.h>
#include <stdio.h>

#include "pg/cpu/shm/verdict.h"

size_t
dl_sizes_header(const dl_board *board)
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

void
dl_sizes_write(const dl_board *board, const dl_transfer *transfer)
{
    int size = board->options.size;
    uint64_t *row = row_of(board, transfer->rank);

    for (int rank = 0; rank < size; rank++) {
        row[rank] = transfer->size(transfer, transfer->rank, rank);
        row[size + rank] = transfer->expected(transfer, rank);
    }
}

size_t
dl_sizes_sent(const dl_board *board, int source, int destination)
{
    return row_of(board, source)[destination];
}

static dl_status
fail(const dl_board *board, int source, int destination)
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

dl_status
dl_sizes_compare(const dl_board *board)
{
    int size = board->options.size;

    for (int source = 0; source < size; source++) {
        const uint64_t *sent = row_of(board, source);
        for (int destination = 0; destination < size; destination++) {
            if (sent[destination] != row_of(board, destination)[size + source]) {
                return fail(board, source, destination);
            }
        }
    }
    return DL_OK;
}
