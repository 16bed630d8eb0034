/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"

static size_t
broadcast_size(const dl_transfer *transfer, int source, int destination)
{
    (void)destination;
    return source == transfer->root ? dl_tensor_size(transfer->inputs) : 0;
}

dl_status
dl_broadcast_board(dl_exchange *exchange, const dl_op_context *op,
                   const dl_broadcast_args *args)
{
    dl_transfer transfer = {
        .rank = exchange->board->options.rank,
        .flow = DL_FROM_ROOT,
        .root = args->root,
        .inputs = &args->tensor,
        .input_count = 1,
        .outputs = &args->tensor,
        .output_count = 1,
        .is_shared = true,
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
dl_all_gather_board(dl_exchange *exchange, const dl_op_context *op,
                    const dl_all_gather_args *args)
{
    int rank = exchange->board->options.rank;
    dl_transfer transfer = {
        .rank = rank,
        .inputs = &args->input,
        .input_count = 1,
        .outputs = args->outputs,
        .output_count = exchange->board->options.size,
        .own_input = &args->input,
        .own_output = &args->outputs[rank],
        .is_shared = true,
        .size = all_gather_size,
    };

    return dl_exchange_run(exchange, op, &transfer);
}

static size_t
gather_size(const dl_transfer *transfer, int source, int destination)
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
dl_gather_board(dl_exchange *exchange, const dl_op_context *op,
                const dl_gather_args *args)
{
    int rank = exchange->board->options.rank;
    dl_transfer transfer = {
        .rank = rank,
        .flow = DL_TO_ROOT,
        .root = args->root,
        .inputs = &args->input,
        .input_count = 1,
        .outputs = args->outputs,
        .output_count = exchange->board->options.size,
        .own_input = &args->input,
        .own_output = rank == args->root ? &args->outputs[rank] : NULL,
        .size = gather_size,
        .expected = args->is_uneven ? gather_expected : NULL,
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
dl_scatter_board(dl_exchange *exchange, const dl_op_context *op,
                 const dl_scatter_args *args)
{
    int rank = exchange->board->options.rank;
    bool is_root = rank == args->root;
    dl_transfer transfer = {
        .rank = rank,
        .flow = DL_FROM_ROOT,
        .root = args->root,
        .inputs = args->inputs,
        .input_count = exchange->board->options.size,
        .outputs = &args->output,
        .output_count = 1,
        .own_input = is_root ? &args->inputs[rank] : NULL,
        .own_output = is_root ? &args->output : NULL,
        .size = scatter_size,
        .expected = args->is_uneven ? scatter_expected : NULL,
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
dl_all_to_all_board(dl_exchange *exchange, const dl_op_context *op,
                    const dl_all_to_all_args *args)
{
    int rank = exchange->board->options.rank;
    int size = exchange->board->options.size;
    dl_transfer transfer = {
        .rank = rank,
        .inputs = args->inputs,
        .input_count = size,
        .outputs = args->outputs,
        .output_count = size,
        .own_input = &args->inputs[rank],
        .own_output = &args->outputs[rank],
        .size = all_to_all_size,
        .expected = all_to_all_expected,
    };

    return dl_exchange_run(exchange, op, &transfer);
}
