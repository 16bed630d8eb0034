/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"
#include "pg/cpu/algorithms/limits.h"
#include "pg/cpu/algorithms/pipeline.h"
#include "tensor/copy.h"

/* An array in rounds of equal size: a short last one would cost an arrival all the
 * same. */
typedef struct rounds {
    dl_board *board;
    dl_fold fold;
    bool is_exclusive;
    uint8_t *data;
    size_t size;
    size_t chunk; /* bytes of a round; the last may have fewer */
    uint64_t count;
} rounds;

static rounds
rounds_of(dl_board *board, const dl_call *call, size_t most)
{
    size_t size = dl_tensor_size(&call->tensor);
    size_t count = size == 0 ? 1 : (size + most - 1) / most;
    size_t chunk = dl_round_up((size + count - 1) / count, DL_LINE);

    return (rounds){
        .board = board,
        .fold = dl_fold_of(call, board->options.size),
        .is_exclusive = call->op == DL_EXSCAN,
        .data = call->tensor.data,
        .size = size,
        .chunk = chunk,
        .count = size == 0 ? 1 : (size + chunk - 1) / chunk,
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

static void
copy_in(const rounds *all, uint64_t round)
{
    dl_slot_write(&all->board->writer, slot_in(all, all->board->options.rank, round),
                  all->data + round * all->chunk, round_size(all, round));
}

/* The first algorithm: each rank reduces the arrays of the ranks up to its own. */

/* Reduces `size` bytes of the ranks up to this one into `target`.  Of `sources` the
 * caller sets where the ranks' arrays are; the first two ranks read their own bytes in
 * `target`, to which a fold may write then (dl_fold_run). */
static void
reduce_prefix(const rounds *all, dl_fold_sources sources, uint8_t *target, size_t size)
{
    int rank = all->board->options.rank;
    dl_fold fold = all->fold;

    sources.own_rank = rank < 2 ? rank : -1;
    sources.own = target;
    fold.count = rank + (all->is_exclusive ? 0 : 1);
    if (fold.count >= 2) {
        dl_fold_run(&fold, &sources, size, target, NULL);
    } else if (rank == 1) {
        dl_copy(target, sources.by_rank != NULL ? sources.by_rank[0] : sources.first,
                size);
    }
}

/* Returns whether the arrays are eager data. */
static bool
goes_ahead(const dl_board *board, size_t size)
{
    bool is_sharing = board->header->cores_per_rank == 0;

    return size <= DL_BOARD_PAYLOAD
           || (is_sharing && size <= DL_SCAN_EAGER_LIMIT_WHEN_SHARING);
}

/* Sets board->sources to the arrays of the ranks up to this one, of which the first two
 * read their own at `own`. */
static void
list_eager(dl_board *board, uint8_t *own, size_t size)
{
    int rank = board->options.rank;

    for (int source = 0; source <= rank; source++) {
        board->sources[source] = dl_board_eager(board, source, size);
    }
    if (rank < 2) {
        board->sources[rank] = own;
    }
}

/* Each rank needs the arrays of the ranks before it only, so that the first ones go on
 * without waiting for the last. */
static dl_status
scan_ahead(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    int rank = board->options.rank;
    rounds all = rounds_of(board, call, DL_SCAN_EAGER_LIMIT_WHEN_SHARING);

    dl_board_begin(board, op);
    if (all.size > 0) {
        memcpy(dl_board_take_eager(board, all.size), all.data, all.size);
    }
    DL_TRY(rank == 0 ? dl_board_announce(board) : dl_board_await(board, 0, rank - 1));
    if (all.size > 0) {
        list_eager(board, all.data, all.size);
        dl_fold_sources sources = {.by_rank = board->sources};
        reduce_prefix(&all, sources, all.data, all.size);
    }
    return DL_OK;
}

/* Fills this rank's slot unless no rank reads it: the last one's is read by itself at
 * most. */
static void
fill_slot(const void *context, uint64_t round)
{
    const rounds *all = context;
    int rank = all->board->options.rank;

    if (rank + 1 < all->board->options.size || rank >= 2) {
        copy_in(all, round);
    }
}

static void
drain_slots(const void *context, uint64_t round)
{
    const rounds *all = context;

    dl_fold_sources sources = {.first = slot_in(all, 0, round),
                               .stride = 2 * all->board->chunk};

    reduce_prefix(all, sources, all->data + round * all->chunk, round_size(all, round));
}

dl_status
dl_scan_direct(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);

    if (goes_ahead(board, size)) {
        return scan_ahead(board, op, call);
    }
    rounds all = rounds_of(board, call, dl_pipeline_chunk(board, size));
    dl_board_begin(board, op);
    dl_pipeline pipeline = {
        .board = board,
        .rounds = all.count,
        .fill = fill_slot,
        .drain = drain_slots,
        .context = &all,
    };
    fill_slot(&all, 0);
    DL_TRY(dl_board_arrive(board));
    return dl_pipeline_run(&pipeline);
}

/* The second algorithm: each round takes the next chunk of the arrays and divides it
 * into one share per rank:
 *
 *     in      each rank copies its chunk into its own slot
 *     scan    rank r replaces share r in all slots by the prefixes of all ranks
 *     out     each rank copies its chunk out of its own slot
 *
 * `in` of the next round, into the other slot, comes between `scan` and `out`, while
 * slower ranks still scan.  All ranks have scanned that slot by then, two rounds before,
 * and only its owner reads it afterwards, so no step is needed for `out`.
 *
 * The shares are those of the reduce-scatter in Rabenseifner, "Optimization of
 * collective reduction operations" (ICCS 2004).  In the pipelines and trees of Sanders
 * and Traeff, "Parallel prefix (scan) algorithms for MPI" (EuroPVM/MPI 2006), which
 * suit messages, a rank waits for those before it; here all ranks work at once. */

/* The shares are whole cache lines, so that no two ranks write to the same one. */
static void
scan_share(const rounds *all, uint64_t round)
{
    const dl_board *board = all->board;
    size_t size = round_size(all, round);
    size_t ranks = (size_t)board->options.size;
    size_t share = dl_round_up((size + ranks - 1) / ranks, DL_LINE);
    size_t start = dl_min_size((size_t)board->options.rank * share, size);
    dl_prefixes prefixes = {
        .first = slot_in(all, 0, round) + start,
        .stride = 2 * board->chunk,
        .count = board->options.size,
        .is_exclusive = all->is_exclusive,
    };

    dl_fold_prefixes(&all->fold, &prefixes, dl_min_size(share, size - start));
}

/* The first rank's array stays as it is in an exscan, and is its own result in a
 * scan. */
static void
copy_out(const rounds *all, uint64_t round)
{
    int rank = all->board->options.rank;

    if (rank > 0) {
        dl_copy(all->data + round * all->chunk, slot_in(all, rank, round),
                round_size(all, round));
    }
}

/* In each round a rank publishes two steps: it has scanned its share, and it has copied
 * the next round in.  The last round has only the first of them.  Round 0 is copied in
 * before the arrival. */
#define STEPS_PER_ROUND 2

dl_status
dl_scan_chunks(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    /* As in all_reduce.c: half a slot where each rank has a core. */
    size_t most = board->header->cores_per_rank > 0 ? board->chunk / 2 : board->chunk;
    rounds all = rounds_of(board, call, most);

    dl_board_begin(board, op);
    copy_in(&all, 0);
    DL_TRY(dl_board_arrive(board));
    for (uint64_t round = 0; round < all.count; round++) {
        uint64_t scanned = round * STEPS_PER_ROUND + 1;
        if (round > 0) {
            DL_TRY(dl_board_wait_steps(board, scanned - 1));
        }
        scan_share(&all, round);
        dl_board_publish_step(board, scanned);
        if (round + 1 < all.count) {
            copy_in(&all, round + 1);
            dl_board_publish_step(board, scanned + 1);
        }
        DL_TRY(dl_board_wait_steps(board, scanned));
        copy_out(&all, round);
    }
    dl_board_end(board, all.count, all.count * STEPS_PER_ROUND);
    return DL_OK;
}

static bool
suits_direct(const dl_board *board, size_t size)
{
    size_t ranks = (size_t)board->options.size;

    if (board->header->cores_per_rank == 0) {
        return size <= DL_SCAN_DIRECT_LIMIT_WHEN_SHARING;
    }
    return ranks == 2 || size <= DL_SCAN_DIRECT_LIMIT_OF_ALL_RANKS / ranks;
}

dl_status
dl_scan_select(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);

    return size <= DL_BOARD_PAYLOAD || suits_direct(board, size)
               ? dl_scan_direct(board, op, call)
               : dl_scan_chunks(board, op, call);
}
