/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"
#include "tensor/strided.h"

/* Reduces the blocks that arrive in an exchange with this rank's own block. */
typedef struct reduction {
    dl_fold fold;
    const dl_tensor *own;    /* plain, and multiplied already for PREMUL_SUM */
    const dl_tensor *output; /* of any layout; may be `own` */
    bool is_indirect; /* results are computed in a buffer and copied to `output` */
} reduction;

/* Bytes that are reduced at a time, so that they stay in the first-level cache. */
#define PIECE ((size_t)8192)

/* Reduces `size` bytes of all sources through a buffer, into the output from byte
 * `start` on. */
static void
reduce_part(const reduction *self, const dl_fold_sources *sources, size_t start,
            size_t size)
{
    dl_fold_sources piece = *sources;
    _Alignas(64) uint8_t result[PIECE];

    for (; piece.start < size; piece.start += PIECE) {
        size_t left = size - piece.start;
        size_t part = left < PIECE ? left : PIECE;
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
    dl_fold_sources sources = {.by_rank = exchange->sources};

    exchange->sources[exchange->transfer->rank] = (uint8_t *)self->own->data + start;
    for (int i = 0; i < exchange->incoming_count; i++) {
        const dl_stream *stream = &exchange->incoming[i];
        exchange->sources[stream->rank] = dl_exchange_part(exchange, stream, round);
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

static size_t
reduce_size(const dl_transfer *transfer, int source, int destination)
{
    bool is_sent = destination == transfer->root && source != transfer->root;

    return is_sent ? dl_tensor_size(transfer->inputs) : 0;
}

dl_status
dl_reduce_board(dl_exchange *exchange, const dl_op_context *op,
                const dl_reduce_args *args)
{
    int rank = exchange->board->options.rank;
    dl_all_reduce_args like = {.tensor = args->tensor, .op = args->op};
    reduction reduction = {
        .fold = dl_fold_of(&like, exchange->board->options.size),
        .own = &args->tensor,
        .output = &args->tensor,
        .is_indirect = is_indirect(&args->tensor, &args->tensor, rank),
    };
    dl_transfer transfer = {
        .rank = rank,
        .flow = DL_TO_ROOT,
        .root = args->root,
        .inputs = &args->tensor,
        .input_count = 1,
        .outputs = &args->tensor,
        .output_count = 1,
        .size = reduce_size,
        .factor = args->op == DL_PREMUL_SUM ? &args->factor : NULL,
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

dl_status
dl_reduce_scatter_board(dl_exchange *exchange, const dl_op_context *op,
                        const dl_reduce_scatter_args *args, const dl_tensor *own)
{
    int rank = exchange->board->options.rank;
    dl_all_reduce_args like = {.tensor = args->output, .op = args->op};
    reduction reduction = {
        .fold = dl_fold_of(&like, exchange->board->options.size),
        .own = own,
        .output = &args->output,
        .is_indirect = is_indirect(own, &args->output, rank),
    };
    dl_transfer transfer = {
        .rank = rank,
        .inputs = args->inputs,
        .input_count = exchange->board->options.size,
        .outputs = &args->output,
        .output_count = 1,
        .size = reduce_scatter_size,
        .factor = args->op == DL_PREMUL_SUM ? &args->factor : NULL,
        .drain = reduce_incoming,
        .context = &reduction,
    };

    return dl_exchange_run(exchange, op, &transfer);
}
