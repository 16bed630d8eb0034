/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"
#include "pg/cpu/algorithms/swap.h"
#include "tensor/copy.h"

/* Limits up to which it is faster that each rank reduces the arrays of all ranks up to
 * its own: the last rank's work grows with the number of ranks.  They are those up to
 * which an all_reduce has one meeting. */
#define FEW_BYTES_OF_ALL_RANKS ((size_t)4 << 10)
#define FEW_BYTES_WHEN_SHARING ((size_t)16 << 10)

/* The most ranks, and bytes times the square of their number, for which it is faster that
 * they do not meet: each reads the pockets of all before it, which are others in each
 * operation, have page faults when they are first used, and have left the caches when
 * they are used again.  Where ranks share cores a meeting takes longer, too. */
#define POCKET_RANKS 4
#define POCKET_RANKS_WHEN_SHARING 8
#define POCKET_BYTES_BY_SQUARE ((size_t)256 << 10)

static size_t
least(size_t left, size_t right)
{
    return left < right ? left : right;
}

/* Reduces the arrays of the ranks up to this one, `stride` bytes apart from `first` on,
 * into its own. */
static void
reduce_prefix(const dl_board *board, const dl_call *call, const uint8_t *first,
              size_t stride)
{
    int count = board->options.rank + (call->op == DL_EXSCAN ? 0 : 1);
    size_t size = dl_tensor_size(&call->tensor);
    dl_fold fold = dl_fold_of(call, count);
    dl_fold_sources sources = {.first = first, .stride = stride, .own_rank = -1};

    if (count >= 2) {
        dl_fold_run(&fold, &sources, size, call->tensor.data, NULL);
    } else if (count == 1 && board->options.rank > 0) {
        dl_copy(call->tensor.data, first, size);
    }
}

/* Each rank puts its array on its line, or into its pocket, and needs those of the ranks
 * before it only, so that the first ones go on without waiting for the last. */
dl_status
dl_scan_few(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    int rank = board->options.rank;
    size_t size = dl_tensor_size(&call->tensor);
    bool is_on_line = size <= DL_BOARD_PAYLOAD;
    uint8_t *payload = dl_board_begin(board, op);
    const uint8_t *first =
        is_on_line ? dl_board_payload(board, 0) : dl_board_pocket(board, 0);
    size_t stride =
        is_on_line ? sizeof(dl_board_line) : dl_board_pocket_step(board->pocket);

    if (size > 0) {
        dl_slot_write(&board->writer,
                      is_on_line ? payload : dl_board_pocket(board, rank),
                      call->tensor.data, size);
    }
    DL_TRY(rank == 0 ? dl_board_announce(board) : dl_board_await(board, 0, rank - 1));
    if (size > 0) {
        reduce_prefix(board, call, first, stride);
    }
    return DL_OK;
}

dl_status
dl_scan_slot(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    dl_board_begin(board, op);
    dl_slot_write(&board->writer, dl_board_slot(board, board->options.rank, 0),
                  call->tensor.data, dl_tensor_size(&call->tensor));
    DL_TRY(dl_board_arrive(board));
    reduce_prefix(board, call, dl_board_slot(board, 0, 0), 2 * board->chunk);
    dl_board_end(board, 1, 0);
    return DL_OK;
}

/* Each round takes the next chunk of the arrays and divides it into one share per rank:
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
 * and Traeff, "Parallel prefix (scan) algorithms for MPI" (EuroPVM/MPI 2006), which suit
 * messages, a rank waits for those before it; here all ranks work at once. */
typedef struct rounds {
    dl_board *board;
    dl_fold fold;
    bool is_exclusive;
    uint8_t *data;
    size_t size;
    size_t chunk; /* bytes of a round; the last may have fewer */
    uint64_t count;
} rounds;

/* Makes rounds of equal size, for the reasons of all_reduce.c: half a slot where each
 * rank has a core, so that the data stays in its cache. */
static rounds
rounds_of(dl_board *board, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    size_t most = board->header->cores_per_rank > 0 ? board->chunk / 2 : board->chunk;
    size_t count = (size + most - 1) / most;
    size_t chunk = dl_round_up((size + count - 1) / count, DL_LINE);

    return (rounds){
        .board = board,
        .fold = dl_fold_of(call, board->options.size),
        .is_exclusive = call->op == DL_EXSCAN,
        .data = call->tensor.data,
        .size = size,
        .chunk = chunk,
        .count = (size + chunk - 1) / chunk,
    };
}

static size_t
round_size(const rounds *all, uint64_t round)
{
    return least(all->size - round * all->chunk, all->chunk);
}

static void
copy_in(const rounds *all, uint64_t round)
{
    dl_slot_write(&all->board->writer,
                  dl_board_slot(all->board, all->board->options.rank, round),
                  all->data + round * all->chunk, round_size(all, round));
}

/* The shares are whole cache lines, so that no two ranks write to the same one. */
static void
scan_share(const rounds *all, uint64_t round)
{
    const dl_board *board = all->board;
    size_t size = round_size(all, round);
    size_t ranks = (size_t)board->options.size;
    size_t share = dl_round_up((size + ranks - 1) / ranks, DL_LINE);
    size_t start = least((size_t)board->options.rank * share, size);
    dl_prefixes prefixes = {
        .first = dl_board_slot(board, 0, round) + start,
        .stride = 2 * board->chunk,
        .count = board->options.size,
        .is_exclusive = all->is_exclusive,
    };

    dl_fold_prefixes(&all->fold, &prefixes, least(share, size - start));
}

/* The first rank's array stays as it is in an exscan, and is its own result in a
 * scan. */
static void
copy_out(const rounds *all, uint64_t round)
{
    int rank = all->board->options.rank;

    if (rank > 0) {
        dl_copy(all->data + round * all->chunk, dl_board_slot(all->board, rank, round),
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
    rounds all = rounds_of(board, call);

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

/* The rounds of two ranks, of which the first writes and the second reads (swap.h). */

static void
pass_chunk(const void *context, uint64_t round)
{
    const rounds *all = context;

    if (all->board->options.rank == 0) {
        copy_in(all, round);
    }
}

static void
take_chunk(const void *context, uint64_t round)
{
    const rounds *all = context;
    uint8_t *data = all->data + round * all->chunk;
    const uint8_t *first = dl_board_slot(all->board, 0, round);
    dl_fold_sources sources = {.first = first, .own_rank = 1, .own = data};

    if (all->board->options.rank == 0) {
        return;
    }
    if (all->is_exclusive) {
        dl_copy(data, first, round_size(all, round));
    } else {
        dl_fold_run(&all->fold, &sources, round_size(all, round), data, NULL);
    }
}

dl_status
dl_scan_swap(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    size_t chunk = dl_swap_chunk(size);
    rounds all = rounds_of(board, call);

    all.chunk = chunk;
    all.count = (size + chunk - 1) / chunk;
    dl_board_begin(board, op);
    dl_swap swap = {
        .board = board,
        .rounds = all.count,
        .window = dl_board_divide_slots(board, chunk),
        .fill = pass_chunk,
        .drain = take_chunk,
        .context = &all,
    };
    pass_chunk(&all, 0);
    DL_TRY(dl_board_arrive(board));
    return dl_swap_run(&swap);
}

static bool
suits_pockets(const dl_board *board, size_t size)
{
    int most =
        board->header->cores_per_rank > 0 ? POCKET_RANKS : POCKET_RANKS_WHEN_SHARING;
    size_t ranks = (size_t)board->options.size;

    return board->options.size <= most && size <= board->pocket
           && size * ranks * ranks <= POCKET_BYTES_BY_SQUARE;
}

dl_status
dl_scan_select(dl_board *board, const dl_op_context *op, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    size_t few = board->header->cores_per_rank > 0
                     ? FEW_BYTES_OF_ALL_RANKS / (size_t)board->options.size
                     : FEW_BYTES_WHEN_SHARING;

    if (size <= DL_BOARD_PAYLOAD || (size <= few && suits_pockets(board, size))) {
        return dl_scan_few(board, op, call);
    }
    if (size <= few) {
        return dl_scan_slot(board, op, call);
    }
    return dl_swap_suits(board) ? dl_scan_swap(board, op, call)
                                : dl_scan_chunks(board, op, call);
}
