/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_state.h"

/* A collective that moves bytes.  A side in which this rank takes no part is empty. */
typedef struct movement {
    dl_ucc_backend *self;
    const dl_op_context *op;
    dl_ucc_args args;
    dl_ucc_layout from;
    dl_ucc_layout to;
} movement;

static dl_status
begin_movement(movement *move, dl_backend *backend, const dl_op_context *op)
{
    *move = (movement){.self = dl_ucc_self(backend), .op = op};
    return dl_ucc_rendezvous(move->self, op);
}

static void
set_source(movement *move, const dl_tensor *blocks, int count)
{
    dl_ucc_layout_init(&move->from, blocks, count, move->self->lengths);
}

static void
set_target(movement *move, const dl_tensor *blocks, int count)
{
    dl_ucc_layout_init(&move->to, blocks, count,
                       move->self->lengths + 2 * move->self->size);
}

/* Returns true if a rank's own block is the same memory on both sides, which UCC does
 * not support. */
static bool
is_shared(const movement *move)
{
    const dl_ucc_layout *from = &move->from;
    const dl_tensor *input = &from->blocks[from->count == 1 ? 0 : move->self->rank];

    return input->data == move->to.blocks[move->self->rank].data;
}

/* Makes the blocks contiguous where necessary, runs the collective, and copies the
 * result out. */
static dl_status
move_blocks(movement *move, int collective)
{
    dl_ucc_args *args = &move->args;
    bool is_by_rank = collective == DL_UCC_ALL_TO_ALL_V;

    DL_TRY(dl_ucc_layout_read(&move->from, &move->self->input, is_shared(move)));
    DL_TRY(dl_ucc_layout_write(&move->to, &move->self->output));
    args->collective = collective;
    args->mask = is_by_rank ? DL_UCC_ARGS_FLAGS : 0;
    args->flags = is_by_rank ? DL_UCC_COUNTS_64 | DL_UCC_DISPLACEMENTS_64 : 0;
    args->source = is_by_rank ? dl_ucc_layout_parts(&move->from)
                              : dl_ucc_layout_whole(&move->from);
    args->target =
        is_by_rank ? dl_ucc_layout_parts(&move->to) : dl_ucc_layout_whole(&move->to);
    DL_TRY(dl_ucc_run(move->self, move->op, args, move->from.size + move->to.size));
    dl_ucc_layout_unpack(&move->to);
    return DL_OK;
}

dl_status
dl_ucc_broadcast(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    movement move;

    DL_TRY(begin_movement(&move, backend, op));
    if (call->tensor.count == 0) {
        return DL_OK;
    }
    /* UCC takes the array as `source` on all ranks. */
    bool is_root = call->root == move.self->rank;
    dl_ucc_layout *side = &move.from;
    set_source(&move, &call->tensor, 1);
    DL_TRY(is_root ? dl_ucc_layout_read(side, &move.self->input, false)
                   : dl_ucc_layout_write(side, &move.self->input));
    move.args.collective = DL_UCC_BROADCAST;
    move.args.root = (uint64_t)call->root;
    move.args.source = dl_ucc_layout_whole(side);
    DL_TRY(dl_ucc_run(move.self, op, &move.args, side->size));
    if (!is_root) {
        dl_ucc_layout_unpack(side);
    }
    return DL_OK;
}

dl_status
dl_ucc_barrier(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    movement move;

    (void)call;
    DL_TRY(begin_movement(&move, backend, op));
    move.args.collective = DL_UCC_BARRIER;
    return dl_ucc_run(move.self, op, &move.args, 0);
}

dl_status
dl_ucc_all_gather(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    movement move;

    DL_TRY(begin_movement(&move, backend, op));
    set_source(&move, &call->tensor, 1);
    set_target(&move, call->outputs, move.self->size);
    if (move.to.size == 0) {
        return DL_OK;
    }
    return move_blocks(&move, DL_UCC_ALL_GATHER);
}

dl_status
dl_ucc_all_to_all(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    movement move = {.self = dl_ucc_self(backend), .op = op};

    set_source(&move, call->inputs, move.self->size);
    set_target(&move, call->outputs, move.self->size);
    DL_TRY(dl_ucc_compare_sizes(move.self, op, &move.from, &move.to));
    return move_blocks(&move, DL_UCC_ALL_TO_ALL_V);
}
