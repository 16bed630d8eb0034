/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"
#include "tensor/copy.h"

/* Bytes that are reduced and distributed at a time, so that they stay in the
 * first-level cache. */
#define PIECE ((size_t)8192)

bool
dl_shared_announce(dl_board *board, const dl_tensor *tensor, void *payload)
{
    const dl_shared_views *views = board->options.views;
    dl_shared_place place = {0};

    if (views != NULL) {
        place = dl_shared_find(views->arena, tensor->data, dl_tensor_size(tensor));
    }
    memcpy(payload, &place, sizeof place);
    return place.size > 0;
}

static dl_shared_place
place_of(const dl_board *board, int rank)
{
    dl_shared_place place;

    memcpy(&place, dl_board_payload(board, rank), sizeof place);
    return place;
}

int
dl_shared_count(const dl_board *board)
{
    int count = 0;

    for (int rank = 0; rank < board->options.size; rank++) {
        count += place_of(board, rank).size > 0;
    }
    return count;
}

static dl_status
find_arrays(dl_board *board, const dl_tensor *tensor)
{
    dl_shared_views *views = board->options.views;

    for (int rank = 0; rank < board->options.size; rank++) {
        dl_shared_place place = place_of(board, rank);
        views->arrays[rank] = tensor->data;
        if (rank != board->options.rank) {
            DL_TRY(dl_shared_views_map(views, &place, dl_tensor_size(tensor),
                                       &views->arrays[rank]));
        }
    }
    return DL_OK;
}

/* Reduces this rank's share in pieces, and writes each to all arrays.  Ordinary stores
 * are used, because the arrays are in the caches by then: non-temporal stores take half
 * as long again. */
static void
reduce_share(const dl_board *board, const dl_fold *fold, size_t start, size_t end)
{
    uint8_t *const *arrays = board->options.views->arrays;
    dl_fold_sources sources = {.by_rank = arrays};
    int own = board->options.rank;
    _Alignas(64) uint8_t sum[PIECE];

    for (size_t at = start; at < end; at += PIECE) {
        size_t size = end - at < PIECE ? end - at : PIECE;
        sources.start = at;
        uint8_t *target = own < 2 ? arrays[own] + at : sum;
        dl_fold_run(fold, &sources, size, target, NULL);
        for (int rank = 0; rank < fold->count; rank++) {
            if (rank != own || own >= 2) {
                dl_copy(arrays[rank] + at, target, size);
            }
        }
    }
}

/* Returns the bytes of a rank's share: whole cache lines, if the arrays begin at
 * one. */
static size_t
share_of(size_t size, int ranks)
{
    size_t least = (size + (size_t)ranks - 1) / (size_t)ranks;

    return (least + DL_LINE - 1) / DL_LINE * DL_LINE;
}

dl_status
dl_all_reduce_shared(dl_board *board, const dl_all_reduce_args *args)
{
    size_t size = dl_tensor_size(&args->tensor);
    dl_fold fold = dl_fold_of(args, board->options.size);
    size_t share = share_of(size, fold.count);
    size_t start = (size_t)board->options.rank * share;
    size_t end = start + share < size ? start + share : size;

    DL_TRY(find_arrays(board, &args->tensor));
    reduce_share(board, &fold, start, end);
    /* No rank returns before the others have read its array and written to it. */
    dl_board_publish_step(board, 1);
    DL_TRY(dl_board_wait_steps(board, 1));
    dl_board_end(board, 0, 1);
    return DL_OK;
}
