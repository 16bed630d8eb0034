/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/hosts_fold.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

/* Returns the operation that all levels use: PREMUL_SUM's factors have been multiplied
 * into the data by now. */
static dl_reduce_op
plain_op(dl_reduce_op op)
{
    return op == DL_PREMUL_SUM ? DL_SUM : op;
}

/* Returns whether partial results of a host would have to be rounded between the
 * levels. */
static bool
is_widened(const dl_hosts *hosts, dl_dtype dtype)
{
    return dl_reduce_dtype(dtype) != dtype
           && hosts->layout->host_count < hosts->layout->size;
}

/* Reduces the arrays of this host to its leader's.  An average is a sum here; the
 * leaders divide at the end. */
static dl_status
fold_host(dl_hosts *hosts, const dl_op_context *op, const dl_all_reduce_args *args)
{
    dl_reduce_op within = args->op == DL_AVG ? DL_SUM : args->op;
    dl_reduce_args call = {.tensor = args->tensor, .op = within};

    return hosts->board == NULL ? DL_OK : dl_reduce_board(hosts->exchange, op, &call);
}

/* Distributes the result within the host; it is in the leader's tensor. */
static dl_status
spread(dl_hosts *hosts, const dl_op_context *op, const dl_tensor *tensor)
{
    dl_broadcast_args call = {.tensor = *tensor};

    return hosts->board == NULL ? DL_OK
                                : dl_broadcast_board(hosts->exchange, op, &call);
}

/* Runs all three levels.  `root` is the host that gets the result; -1: all do. */
static dl_status
run_levels(dl_hosts *hosts, const dl_op_context *op, const dl_all_reduce_args *args,
           int root)
{
    dl_host_fold between = dl_host_fold_of(hosts, args, root);

    DL_TRY(fold_host(hosts, dl_hosts_first(hosts, op), args));
    dl_hosts_last(hosts);
    if (dl_layout_leads(hosts->layout)) {
        DL_TRY(dl_host_fold_run(&between));
    }
    return root < 0 || root == hosts->layout->host
               ? spread(hosts, dl_hosts_last(hosts), &args->tensor)
               : dl_hosts_meet(hosts, dl_hosts_last(hosts));
}

/* Makes a contiguous array of `dtype` in this rank's scratch memory. */
static dl_status
make_row(dl_hosts *hosts, size_t count, dl_dtype dtype, dl_tensor *row)
{
    uint8_t *room;
    size_t item_size = dl_dtype_size(dtype);

    DL_TRY(dl_hosts_room(&hosts->work, count * item_size, &room));
    *row = (dl_tensor){
        .data = room,
        .count = count,
        .item_size = item_size,
        .dtype = dtype,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
    return DL_OK;
}

/* Reduces in float32 from the first addition on, so that there is one rounding, at the
 * end, and the same on all ranks. */
static dl_status
run_widened(dl_hosts *hosts, const dl_op_context *op, const dl_all_reduce_args *args,
            int root)
{
    const dl_tensor *tensor = &args->tensor;
    dl_all_reduce_args wide = {.op = args->op};

    DL_TRY(make_row(hosts, tensor->count, DL_FLOAT32, &wide.tensor));
    dl_reduce_widen(wide.tensor.data, tensor->dtype, tensor->data, tensor->count);
    DL_TRY(run_levels(hosts, op, &wide, root));
    dl_reduce_narrow(tensor->data, tensor->dtype, wide.tensor.data, tensor->count);
    return DL_OK;
}

static dl_status
run(dl_hosts *hosts, const dl_op_context *op, const dl_all_reduce_args *args, int root)
{
    dl_all_reduce_args plain = {.tensor = args->tensor, .op = plain_op(args->op)};

    return is_widened(hosts, args->tensor.dtype) ? run_widened(hosts, op, &plain, root)
                                                 : run_levels(hosts, op, &plain, root);
}

dl_status
dl_hosts_all_reduce(dl_hosts *hosts, const dl_op_context *op,
                    const dl_all_reduce_args *args)
{
    return run(hosts, op, args, -1);
}

/* Copies the tensor to `target`, contiguous, and multiplied for PREMUL_SUM. */
static void
take_in(uint8_t *target, const dl_tensor *tensor, dl_reduce_op op, double factor)
{
    dl_strided_gather_part(target, tensor, 0, dl_tensor_size(tensor));
    if (op == DL_PREMUL_SUM) {
        dl_reduce_scale(target, tensor->dtype, target, tensor->count, factor);
    }
}

/* Works on a copy, because the tensors of ranks other than the root do not change. */
dl_status
dl_hosts_reduce(dl_hosts *hosts, const dl_op_context *op, const dl_reduce_args *args)
{
    const dl_layout *layout = hosts->layout;
    dl_all_reduce_args copy = {.tensor = args->tensor, .op = args->op};
    uint8_t *room;

    DL_TRY(dl_hosts_room(&hosts->flat, dl_tensor_size(&args->tensor), &room));
    copy.tensor.data = room;
    copy.tensor.is_contiguous = true;
    take_in(room, &args->tensor, args->op, args->factor);
    DL_TRY(run(hosts, op, &copy, layout->host_of[args->root]));
    if (layout->rank == args->root) {
        dl_strided_scatter_part(&args->tensor, room, 0, dl_tensor_size(&args->tensor));
    }
    return DL_OK;
}

/* A reduce_scatter; `row` has its blocks, contiguous, those of a host side by side. */
typedef struct blocks {
    dl_hosts *hosts;
    const dl_reduce_scatter_args *args;
    dl_tensor row;
    size_t *starts; /* by host: offset of its blocks in bytes; and the end */
} blocks;

/* Multiplies in the type of the input and then widens, as on one host. */
static void
put_block(const blocks *self, size_t at, const dl_tensor *input)
{
    const dl_reduce_scatter_args *args = self->args;
    uint8_t *place = (uint8_t *)self->row.data + at;
    uint8_t *narrow = self->hosts->flat.data;

    if (self->row.dtype == input->dtype) {
        take_in(place, input, args->op, args->factor);
        return;
    }
    take_in(narrow, input, args->op, args->factor);
    dl_reduce_widen((float *)(void *)place, input->dtype, narrow, input->count);
}

/* Reserves `hosts->flat` for the largest block, which put_block() widens from there. */
static dl_status
make_blocks(blocks *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    const dl_tensor *inputs = self->args->inputs;
    bool is_wide = is_widened(hosts, inputs->dtype);
    size_t count = 0;
    size_t largest = 0;
    uint8_t *narrow;

    for (int rank = 0; rank < layout->size; rank++) {
        size_t size = dl_tensor_size(&inputs[rank]);
        count += inputs[rank].count;
        largest = size > largest ? size : largest;
    }
    self->starts = calloc((size_t)layout->host_count + 1, sizeof *self->starts);
    if (self->starts == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_hosts_room(&hosts->flat, largest, &narrow));
    return make_row(hosts, count, is_wide ? DL_FLOAT32 : inputs->dtype, &self->row);
}

static void
fill_blocks(const blocks *self)
{
    const dl_layout *layout = self->hosts->layout;
    size_t at = 0;

    for (int host = 0; host < layout->host_count; host++) {
        self->starts[host] = at;
        for (int i = 0; i < dl_layout_count(layout, host); i++) {
            const dl_tensor *input =
                &self->args->inputs[dl_layout_ranks(layout, host)[i]];
            put_block(self, at, input);
            at += input->count * self->row.item_size;
        }
    }
    self->starts[layout->host_count] = at;
}

/* Distributes the leader's row to the outputs of this host's ranks, through the
 * board. */
static dl_status
hand_out(const blocks *self, const dl_op_context *op, const dl_tensor *output)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    dl_tensor *parts = hosts->locals[0];
    uint8_t *at = (uint8_t *)self->row.data + self->starts[layout->host];

    for (int i = 0; i < dl_hosts_local_count(hosts); i++) {
        int rank = dl_layout_ranks(layout, layout->host)[i];
        parts[i] = self->row;
        parts[i].data = at;
        parts[i].count = self->args->inputs[rank].count;
        at += dl_tensor_size(&parts[i]);
    }
    dl_scatter_args call = {.inputs = dl_layout_leads(layout) ? parts : NULL,
                            .output = *output,
                            .is_uneven = true};
    if (hosts->board != NULL) {
        return dl_scatter_board(hosts->exchange, op, &call);
    }
    dl_strided_scatter_part(output, parts[0].data, 0, dl_tensor_size(output));
    return DL_OK;
}

/* Used where the row has a wider type than the output: receives this rank's block in
 * that type and rounds it. */
static dl_status
hand_out_narrowed(const blocks *self, const dl_op_context *op)
{
    const dl_tensor *output = &self->args->output;
    dl_hosts *hosts = self->hosts;
    dl_tensor wide = self->row;
    uint8_t *room;

    DL_TRY(dl_hosts_room(&hosts->incoming, output->count * 2 * sizeof(float), &room));
    wide.data = room;
    wide.count = output->count;
    uint8_t *narrow = room + output->count * sizeof(float);
    DL_TRY(hand_out(self, op, &wide));
    dl_reduce_narrow(narrow, output->dtype, wide.data, output->count);
    dl_strided_scatter_part(output, narrow, 0, dl_tensor_size(output));
    return DL_OK;
}

/* The blocks of a host are side by side in the row, so that what goes to another host
 * is one message. */
static dl_status
reduce_blocks(blocks *self, const dl_op_context *op)
{
    dl_hosts *hosts = self->hosts;

    DL_TRY(make_blocks(self));
    fill_blocks(self);
    dl_all_reduce_args call = {.tensor = self->row, .op = plain_op(self->args->op)};
    DL_TRY(fold_host(hosts, dl_hosts_first(hosts, op), &call));
    dl_hosts_last(hosts);
    if (dl_layout_leads(hosts->layout)) {
        dl_host_fold between = dl_host_fold_of(hosts, &call, -1);
        DL_TRY(dl_host_fold_scatter(&between, self->starts));
    }
    return self->row.dtype == self->args->output.dtype
               ? hand_out(self, dl_hosts_last(hosts), &self->args->output)
               : hand_out_narrowed(self, dl_hosts_last(hosts));
}

dl_status
dl_hosts_reduce_scatter(dl_hosts *hosts, const dl_op_context *op,
                        const dl_reduce_scatter_args *args)
{
    blocks all = {.hosts = hosts, .args = args};
    dl_status status = reduce_blocks(&all, op);

    free(all.starts);
    return status;
}
