/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"
#include "tensor/strided.h"

/* One rank's part in a reduction of what arrives with its own. */
typedef struct reduction {
    dl_fold fold;
    const dl_tensor *own;    /* plain, and multiplied already */
    const dl_tensor *output; /* of any layout; may be `own` */
    bool is_in_slot;         /* the result is made there, for it may not be elsewhere */
} reduction;

static bool
is_plain(const dl_tensor *tensor)
{
    size_t alignment = dl_dtype_size(tensor->dtype);

    return tensor->is_contiguous
           && (alignment < 2 || (uintptr_t)tensor->data % alignment == 0);
}

/* The place of the rank's own block in its slot is free for the result. */
static void
reduce_incoming(dl_exchange *exchange, uint64_t round)
{
    const dl_board *board = exchange->board;
    const reduction *self = exchange->transfer->context;
    const dl_stream *stream = &exchange->incoming[0];
    int rank = board->options.rank;
    size_t start = round * stream->piece;
    size_t size = dl_stream_part(stream, round);
    const uint8_t *first = dl_exchange_blocks(exchange, 0, round);
    const uint8_t *second = dl_exchange_blocks(exchange, 1, round);
    dl_fold_sources sources = {
        .first = first + stream->offset,
        .stride = (size_t)(second - first),
        .own_rank = rank,
        .own = (const uint8_t *)self->own->data + start,
    };
    uint8_t *place = dl_exchange_blocks(exchange, rank, round) + stream->offset;

    if (!self->is_in_slot) {
        uint8_t *target = (uint8_t *)self->output->data + start;
        dl_fold_run(&self->fold, &sources, size, target, NULL);
    } else if (is_plain(self->output)) {
        uint8_t *copy = (uint8_t *)self->output->data + start;
        dl_fold_run(&self->fold, &sources, size, place, copy);
    } else {
        dl_fold_run(&self->fold, &sources, size, place, NULL);
        dl_strided_scatter_part(self->output, place, start, size);
    }
}

/* The first two ranks' data are read before the result is written. */
static bool
needs_slot(const dl_tensor *own, const dl_tensor *output, int rank)
{
    return !is_plain(output) || (own->data == output->data && rank >= 2);
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
        .is_in_slot = needs_slot(&args->tensor, &args->tensor, rank),
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

/* Own blocks too: their places are at the same offset in all slots, and in use. */
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
        .is_in_slot = needs_slot(own, &args->output, rank),
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
