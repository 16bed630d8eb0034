/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"
#include "pg/cpu/algorithms/limits.h"
#include "tensor/strided.h"

dl_status
dl_barrier_line(dl_board *board, const dl_op_context *op)
{
    dl_board_begin(board, op);
    return dl_board_arrive(board);
}

static size_t
broadcast_size(const dl_transfer *transfer, int source, int destination)
{
    (void)destination;
    return source == transfer->root ? dl_tensor_size(transfer->inputs) : 0;
}

dl_status
dl_broadcast_board(dl_exchange *exchange, const dl_op_context *op, const dl_call *call)
{
    dl_transfer transfer = {
        .rank = exchange->board->options.rank,
        .flow = DL_FROM_ROOT,
        .root = call->root,
        .inputs = &call->tensor,
        .input_count = 1,
        .outputs = &call->tensor,
        .output_count = 1,
        .is_shared = true,
        .is_even = true,
        .size = broadcast_size,
    };

    return dl_exchange_run(exchange, op, &transfer);
}

static size_t
all_gather_size(const dl_transfer *transfer, int source, int destination)
{
    (void)destination;
    return dl_tensor_size(&transfer->outputs[source]);
}

dl_status
dl_all_gather_board(dl_exchange *exchange, const dl_op_context *op, const dl_call *call)
{
    int rank = exchange->board->options.rank;
    dl_transfer transfer = {
        .rank = rank,
        .inputs = &call->tensor,
        .input_count = 1,
        .outputs = call->outputs,
        .output_count = exchange->board->options.size,
        .own_input = &call->tensor,
        .own_output = &call->outputs[rank],
        .is_shared = true,
        .size = all_gather_size,
    };

    return dl_exchange_run(exchange, op, &transfer);
}

/* The size function of gather and reduce. */
static size_t
size_to_root(const dl_transfer *transfer, int source, int destination)
{
    bool is_sent = destination == transfer->root && source != transfer->root;

    return is_sent ? dl_tensor_size(transfer->inputs) : 0;
}

static size_t
gather_expected(const dl_transfer *transfer, int source)
{
    bool is_expected = transfer->rank == transfer->root && source != transfer->root;

    return is_expected ? dl_tensor_size(&transfer->outputs[source]) : 0;
}

dl_status
dl_gather_board(dl_exchange *exchange, const dl_op_context *op, const dl_call *call)
{
    int rank = exchange->board->options.rank;
    dl_transfer transfer = {
        .rank = rank,
        .flow = DL_TO_ROOT,
        .root = call->root,
        .inputs = &call->tensor,
        .input_count = 1,
        .outputs = call->outputs,
        .output_count = exchange->board->options.size,
        .own_input = &call->tensor,
        .own_output = rank == call->root ? &call->outputs[rank] : NULL,
        .is_even = !call->is_uneven,
        .size = size_to_root,
        .expected = call->is_uneven ? gather_expected : NULL,
    };

    return dl_exchange_run(exchange, op, &transfer);
}

/* Where all blocks have one size, a rank's own output has that of every block. */
static size_t
scatter_size(const dl_transfer *transfer, int source, int destination)
{
    bool is_root = transfer->rank == transfer->root;
    bool is_sent = source == transfer->root && destination != transfer->root;

    return is_sent ? dl_tensor_size(is_root ? &transfer->inputs[destination]
                                            : transfer->outputs)
                   : 0;
}

static size_t
scatter_expected(const dl_transfer *transfer, int source)
{
    bool is_expected = source == transfer->root && transfer->rank != transfer->root;

    return is_expected ? dl_tensor_size(transfer->outputs) : 0;
}

dl_status
dl_scatter_board(dl_exchange *exchange, const dl_op_context *op, const dl_call *call)
{
    int rank = exchange->board->options.rank;
    bool is_root = rank == call->root;
    dl_transfer transfer = {
        .rank = rank,
        .flow = DL_FROM_ROOT,
        .root = call->root,
        .inputs = call->inputs,
        .input_count = exchange->board->options.size,
        .outputs = &call->tensor,
        .output_count = 1,
        .own_input = is_root ? &call->inputs[rank] : NULL,
        .own_output = is_root ? &call->tensor : NULL,
        .is_even = !call->is_uneven,
        .size = scatter_size,
        .expected = call->is_uneven ? scatter_expected : NULL,
    };

    return dl_exchange_run(exchange, op, &transfer);
}

static size_t
all_to_all_size(const dl_transfer *transfer, int source, int destination)
{
    return source == destination ? 0 : dl_tensor_size(&transfer->inputs[destination]);
}

static size_t
all_to_all_expected(const dl_transfer *transfer, int source)
{
    return source == transfer->rank ? 0 : dl_tensor_size(&transfer->outputs[source]);
}

dl_status
dl_all_to_all_board(dl_exchange *exchange, const dl_op_context *op, const dl_call *call)
{
    int rank = exchange->board->options.rank;
    int size = exchange->board->options.size;
    dl_transfer transfer = {
        .rank = rank,
        .inputs = call->inputs,
        .input_count = size,
        .outputs = call->outputs,
        .output_count = size,
        .own_input = &call->inputs[rank],
        .own_output = &call->outputs[rank],
        .size = all_to_all_size,
        .expected = all_to_all_expected,
    };

    return dl_exchange_run(exchange, op, &transfer);
}

/* Reduces the blocks that arrive in an exchange with this rank's own block. */
typedef struct reduction {
    dl_fold fold;
    const dl_tensor *own;    /* plain, and multiplied already for PREMUL_SUM */
    const dl_tensor *output; /* of any layout; may be `own` */
    bool is_indirect; /* results are computed in a buffer and copied to `output` */
} reduction;

/* Reduces `size` bytes of all sources through a buffer, into the output from byte
 * `start` on. */
static void
reduce_part(const reduction *self, const dl_fold_sources *sources, size_t start,
            size_t size)
{
    dl_fold_sources piece = *sources;
    _Alignas(64) uint8_t result[DL_REDUCE_PIECE];

    for (; piece.start < size; piece.start += DL_REDUCE_PIECE) {
        size_t left = size - piece.start;
        size_t part = left < DL_REDUCE_PIECE ? left : DL_REDUCE_PIECE;
        dl_fold_run(&self->fold, &piece, part, result, NULL);
        dl_strided_scatter_part(self->output, result, start + piece.start, part);
    }
}

static void
reduce_incoming(dl_exchange *exchange, uint64_t round)
{
    const reduction *self = exchange->transfer->context;
    size_t start = round * exchange->incoming[0].piece;
    size_t size = dl_stream_part(&exchange->incoming[0], round);
    dl_fold_sources sources = {.by_rank = exchange->board->sources};

    exchange->board->sources[exchange->transfer->rank] =
        (uint8_t *)self->own->data + start;
    for (int i = 0; i < exchange->incoming_count; i++) {
        const dl_stream *stream = &exchange->incoming[i];
        exchange->board->sources[stream->rank] =
            dl_exchange_part(exchange, stream, round);
    }
    if (self->is_indirect) {
        reduce_part(self, &sources, start, size);
    } else {
        uint8_t *target = (uint8_t *)self->output->data + start;
        dl_fold_run(&self->fold, &sources, size, target, NULL);
    }
}

/* A fold reads the data of the first two ranks before it writes the result, so its
 * target may be one of these (dl_fold_run). */
static bool
is_indirect(const dl_tensor *own, const dl_tensor *output, int rank)
{
    return !dl_tensor_is_plain(output) || (own->data == output->data && rank >= 2);
}

dl_status
dl_reduce_board(dl_exchange *exchange, const dl_op_context *op, const dl_call *call)
{
    int rank = exchange->board->options.rank;
    reduction reduction = {
        .fold = dl_fold_of(call, exchange->board->options.size),
        .own = &call->tensor,
        .output = &call->tensor,
        .is_indirect = is_indirect(&call->tensor, &call->tensor, rank),
    };
    dl_transfer transfer = {
        .rank = rank,
        .flow = DL_TO_ROOT,
        .root = call->root,
        .inputs = &call->tensor,
        .input_count = 1,
        .outputs = &call->tensor,
        .output_count = 1,
        .is_even = true,
        .size = size_to_root,
        .factor = call->reduction == DL_PREMUL_SUM ? &call->factor : NULL,
        .drain = reduce_incoming,
        .context = &reduction,
    };

    return dl_exchange_run(exchange, op, &transfer);
}

/* A rank's block for itself counts as well, so that a block has the same offset in all
 * slots. */
static size_t
reduce_scatter_size(const dl_transfer *transfer, int source, int destination)
{
    (void)source;
    return dl_tensor_size(&transfer->inputs[destination]);
}

static bool
are_alike(const dl_tensor *blocks, int count)
{
    for (int i = 1; i < count; i++) {
        if (dl_tensor_size(&blocks[i]) != dl_tensor_size(&blocks[0])) {
            return false;
        }
    }
    return true;
}

dl_status
dl_reduce_scatter_board(dl_exchange *exchange, const dl_op_context *op,
                        const dl_call *call, const dl_tensor *own)
{
    int rank = exchange->board->options.rank;
    reduction reduction = {
        .fold = dl_fold_of(call, exchange->board->options.size),
        .own = own,
        .output = &call->tensor,
        .is_indirect = is_indirect(own, &call->tensor, rank),
    };
    dl_transfer transfer = {
        .rank = rank,
        .inputs = call->inputs,
        .input_count = exchange->board->options.size,
        .outputs = &call->tensor,
        .output_count = 1,
        .is_even = are_alike(call->inputs, exchange->board->options.size),
        .size = reduce_scatter_size,
        .factor = call->reduction == DL_PREMUL_SUM ? &call->factor : NULL,
        .drain = reduce_incoming,
        .context = &reduction,
    };

    return dl_exchange_run(exchange, op, &transfer);
}
