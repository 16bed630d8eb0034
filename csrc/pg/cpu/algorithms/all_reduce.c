/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"
#include "pg/cpu/algorithms/limits.h"
#include "pg/cpu/algorithms/pipeline.h"
#include "tensor/copy.h"

/* Returns the bytes of a rank's share: whole cache lines, so that two ranks never write
 * to the same one if the array begins at one. */
static size_t
share_size(size_t size, int ranks)
{
    return dl_round_up((size + (size_t)ranks - 1) / (size_t)ranks, DL_LINE);
}

dl_status
dl_all_reduce_line(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    uint8_t *payload = dl_board_begin(board, op);

    if (size == 0) {
        return dl_board_arrive(board);
    }
    memcpy(payload, call->tensor.data, size);
    DL_TRY(dl_board_arrive(board));
    dl_fold fold = dl_fold_of(call, board->options.size);
    dl_fold_sources sources = {
        .first = dl_board_payload(board, 0),
        .stride = sizeof(dl_board_line),
        .own_rank = -1,
    };
    dl_fold_run(&fold, &sources, size, call->tensor.data, NULL);
    return DL_OK;
}

static dl_fold_sources
slots_of(const dl_board *board, uint64_t round, size_t size)
{
    return (dl_fold_sources){
        .first = dl_board_slot(board, 0, round, size),
        .stride = 2 * board->chunk,
        .own_rank = -1,
    };
}

dl_status
dl_all_reduce_slot(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    dl_fold fold = dl_fold_of(call, board->options.size);

    dl_board_begin(board, op);
    dl_fold_sources sources = slots_of(board, 0, size);
    dl_slot_write(&board->writer, dl_board_slot(board, board->options.rank, 0, size),
                  call->tensor.data, size);
    DL_TRY(dl_board_arrive(board));
    dl_fold_run(&fold, &sources, size, call->tensor.data, NULL);
    dl_board_end(board, 1, 0);
    return DL_OK;
}

/* Each round takes the next chunk of the array and divides it into one block per rank:
 *
 *     in      each rank copies the blocks of all other ranks into its own slot
 *     reduce  rank r reduces block r of all slots and of its own array, into its array
 *             and into the place of block r in its slot, which `in` has left free
 *     out     each rank copies the blocks of all other ranks out of their slots
 *
 * `in` of the next round, into the other slot, comes between `reduce` and `out`, while
 * slower ranks still reduce. */
typedef struct rounds {
    dl_board *board;
    dl_fold fold;
    uint8_t *data;
    size_t size;
    size_t chunk; /* bytes of a round; the last may have fewer */
    uint64_t count;
    uint64_t first_step; /* steps before those of round 0 */
    bool is_direct; /* each rank reduces everything, if no array is in shared memory */
} rounds;

typedef struct block {
    size_t start;
    size_t size;
} block;

/* Returns the limit of a round in bytes.  Where each rank has a core, it is half a
 * slot: all that a rank touches then stays in its second-level cache.  Where ranks
 * share cores, the additional arrivals would cost more than that gains. */
static size_t
most_of_round(const dl_board *board)
{
    return board->header->cores_per_rank > 0 ? board->chunk / 2 : board->chunk;
}

/* Makes rounds of equal size: a short last round would cost an arrival all the same. */
static rounds
rounds_of(dl_board *board, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    bool is_direct = board->options.size == 2 && board->header->cores_per_rank > 0
                     && size <= DL_ALL_REDUCE_PIPELINE_LIMIT;
    size_t most = most_of_round(board);
    size_t count = (size + most - 1) / most;
    size_t chunk = is_direct ? dl_pipeline_chunk(board, size)
                             : dl_round_up((size + count - 1) / count, DL_LINE);

    return (rounds){
        .board = board,
        .fold = dl_fold_of(call, board->options.size),
        .data = call->tensor.data,
        .size = size,
        .chunk = chunk,
        .count = (size + chunk - 1) / chunk,
        .is_direct = is_direct,
    };
}

static size_t
round_size(const rounds *all, uint64_t round)
{
    return dl_min_size(all->size - round * all->chunk, all->chunk);
}

static uint8_t *
slot_in(const rounds *all, int rank, uint64_t round)
{
    return dl_board_slot(all->board, rank, round, all->chunk);
}

/* Returns the block of `rank`; the last blocks may be empty. */
static block
block_of(const rounds *all, uint64_t round, int rank)
{
    size_t size = round_size(all, round);
    size_t share = share_size(size, all->fold.count);
    size_t start = dl_min_size((size_t)rank * share, size);

    return (block){start, dl_min_size(share, size - start)};
}

static void
copy_in(const void *context, uint64_t round)
{
    const rounds *all = context;
    int rank = all->board->options.rank;
    block own = block_of(all, round, rank);
    uint8_t *slot = slot_in(all, rank, round);
    const uint8_t *data = all->data + round * all->chunk;
    size_t end = own.start + own.size;

    if (all->is_direct) {
        dl_slot_write(&all->board->writer, slot, data, round_size(all, round));
        return;
    }
    dl_slot_write(&all->board->writer, slot, data, own.start);
    dl_slot_write(&all->board->writer, slot + end, data + end,
                  round_size(all, round) - end);
}

/* The result is computed in private memory and copied to the slot from there.  A fold
 * may not write to the array of its third or a later source, so ranks from 2 on compute
 * it in a buffer. */
static void
reduce_own(const rounds *all, uint64_t round)
{
    int rank = all->board->options.rank;
    block own = block_of(all, round, rank);
    const uint8_t *first = slot_in(all, 0, round);
    uint8_t *slot = slot_in(all, rank, round);
    uint8_t *data = all->data + round * all->chunk;
    dl_fold_sources sources = slots_of(all->board, round, all->chunk);
    _Alignas(64) uint8_t sum[DL_REDUCE_PIECE];

    sources.own_rank = rank;
    for (size_t at = own.start; at < own.start + own.size; at += DL_REDUCE_PIECE) {
        size_t size = dl_min_size(own.start + own.size - at, DL_REDUCE_PIECE);
        uint8_t *target = rank < 2 ? data + at : sum;
        sources.own = data + at;
        sources.first = first + at;
        dl_fold_run(&all->fold, &sources, size, target, NULL);
        dl_slot_write(&all->board->writer, slot + at, target, size);
        if (rank >= 2) {
            dl_copy(data + at, sum, size);
        }
    }
}

/* Begins with the next rank, so that the ranks do not all read from the same one at a
 * time. */
static void
copy_out(const rounds *all, uint64_t round)
{
    int ranks = all->fold.count;
    uint8_t *data = all->data + round * all->chunk;

    for (int i = 1; i < ranks; i++) {
        int rank = (all->board->options.rank + i) % ranks;
        block theirs = block_of(all, round, rank);
        dl_copy(data + theirs.start, slot_in(all, rank, round) + theirs.start,
                theirs.size);
    }
}

/* In each round a rank publishes three steps: it has reduced its block; it has copied
 * the next round in; it has copied this round out.  The last round has only the first
 * of them.  Round 0 is copied in before the arrival, except for arrays in shared
 * memory: these are not copied at all if the arrays of all ranks are there.  If only
 * some are, one step precedes the rounds, after which round 0 of these is in as
 * well. */
#define STEPS_PER_ROUND 3

static uint64_t
step_reduced(const rounds *all, uint64_t round)
{
    return all->first_step + round * STEPS_PER_ROUND + 1;
}

static uint64_t
step_next_is_in(const rounds *all, uint64_t round)
{
    return all->first_step + round * STEPS_PER_ROUND + 2;
}

static uint64_t
step_out(const rounds *all, uint64_t round)
{
    return all->first_step + round * STEPS_PER_ROUND + 3;
}

static dl_status
run_round(const rounds *all, uint64_t round)
{
    dl_board *board = all->board;
    bool has_next = round + 1 < all->count;

    if (round > 0) {
        DL_TRY(dl_board_wait_steps(board, step_next_is_in(all, round - 1)));
    }
    reduce_own(all, round);
    dl_board_publish_step(board, step_reduced(all, round));
    if (has_next) {
        /* The slot of the next round was last read in the round before this one. */
        if (round > 0) {
            DL_TRY(dl_board_wait_steps(board, step_out(all, round - 1)));
        }
        copy_in(all, round + 1);
        dl_board_publish_step(board, step_next_is_in(all, round));
    }
    DL_TRY(dl_board_wait_steps(board, step_reduced(all, round)));
    copy_out(all, round);
    if (has_next) {
        dl_board_publish_step(board, step_out(all, round));
    }
    return DL_OK;
}

/* The round of ranks that all reduce everything (pipeline.h). */
static void
reduce_all(const void *context, uint64_t round)
{
    const rounds *all = context;
    uint8_t *data = all->data + round * all->chunk;
    dl_fold_sources sources = slots_of(all->board, round, all->chunk);

    sources.own_rank = all->board->options.rank;
    sources.own = data;
    dl_fold_run(&all->fold, &sources, round_size(all, round), data, NULL);
}

static dl_status
run_pipeline(const rounds *all)
{
    dl_pipeline pipeline = {
        .board = all->board,
        .rounds = all->count,
        .fill = copy_in,
        .drain = reduce_all,
        .context = all,
    };

    return dl_pipeline_run(&pipeline);
}

/* For operations in which some arrays are in shared memory and some are not: copies
 * round 0 of the former, and waits until all ranks have done so. */
static dl_status
copy_in_late(rounds *all, bool is_shared)
{
    if (is_shared) {
        copy_in(all, 0);
    }
    all->first_step = 1;
    dl_board_publish_step(all->board, 1);
    return dl_board_wait_steps(all->board, 1);
}

/* Writes the place of the array in shared memory to the payload of this rank's line,
 * and returns whether it has one. */
static bool
announce_place(dl_board *board, const dl_tensor *tensor, void *payload)
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
announced_place(const dl_board *board, int rank)
{
    dl_shared_place place;

    memcpy(&place, dl_board_payload(board, rank), sizeof place);
    return place;
}

/* Called after the arrival: returns the number of ranks whose arrays are in shared
 * memory. */
static int
count_shared(const dl_board *board)
{
    int count = 0;

    for (int rank = 0; rank < board->options.size; rank++) {
        count += announced_place(board, rank).size > 0;
    }
    return count;
}

static dl_status
find_arrays(dl_board *board, const dl_tensor *tensor)
{
    dl_shared_views *views = board->options.views;

    for (int rank = 0; rank < board->options.size; rank++) {
        dl_shared_place place = announced_place(board, rank);
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
    _Alignas(64) uint8_t sum[DL_REDUCE_PIECE];

    for (size_t at = start; at < end; at += DL_REDUCE_PIECE) {
        size_t size = dl_min_size(end - at, DL_REDUCE_PIECE);
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

/* Called after the arrival, when the arrays of all ranks are in shared memory: each
 * rank reduces its share of all arrays, and writes the result to all of them. */
static dl_status
reduce_in_place(dl_board *board, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    dl_fold fold = dl_fold_of(call, board->options.size);
    size_t share = share_size(size, fold.count);
    size_t start = (size_t)board->options.rank * share;
    size_t end = dl_min_size(start + share, size);

    DL_TRY(find_arrays(board, &call->tensor));
    reduce_share(board, &fold, start, end);
    /* No rank returns before the others have read its array and written to it. */
    dl_board_publish_step(board, 1);
    DL_TRY(dl_board_wait_steps(board, 1));
    dl_board_end(board, 0, 1);
    return DL_OK;
}

dl_status
dl_all_reduce_chunks(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    rounds all = rounds_of(board, call);
    uint8_t *payload = dl_board_begin(board, op);
    bool is_shared = announce_place(board, &call->tensor, payload);

    if (!is_shared) {
        copy_in(&all, 0);
    }
    DL_TRY(dl_board_arrive(board));
    int shared = count_shared(board);
    if (shared == all.fold.count) {
        return reduce_in_place(board, call);
    }
    if (shared == 0 && all.is_direct) {
        return run_pipeline(&all);
    }
    if (shared > 0) {
        DL_TRY(copy_in_late(&all, is_shared));
    }
    for (uint64_t round = 0; round < all.count; round++) {
        DL_TRY(run_round(&all, round));
    }
    dl_board_end(board, all.count, all.first_step + all.count * STEPS_PER_ROUND);
    return DL_OK;
}

static size_t
slot_limit(const dl_board *board)
{
    return board->header->cores_per_rank > 0
               ? DL_ALL_REDUCE_SLOT_LIMIT_OF_ALL_RANKS / (size_t)board->options.size
               : DL_ALL_REDUCE_SLOT_LIMIT_WHEN_SHARING;
}

dl_status
dl_all_reduce_select(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);

    if (size <= DL_BOARD_PAYLOAD) {
        return dl_all_reduce_line(board, op, call);
    }
    if (size <= slot_limit(board)) {
        return dl_all_reduce_slot(board, op, call);
    }
    return dl_all_reduce_chunks(board, op, call);
}
