/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/hosts/reduction.h"
#include "tensor/strided.h"

/* A reduce_scatter; `row` has its blocks, contiguous, those of a host side by side, so that
 * what goes to another host is one message.  Where each rank is alone on its host, and its
 * blocks are sent and folded as they are, there is no row.
 * A row without elements may be NULL on some ranks. */
typedef struct blocks {
    dl_hosts *hosts;
    const dl_call *call;
    dl_leaders_fn *run;
    bool has_row;
    dl_tensor row;
} blocks;

static const dl_tensor *
block_of(const blocks *self, int host, int at)
{
    return &self->call->inputs[dl_layout_ranks(self->hosts->layout, host)[at]];
}

/* Multiplies in the type of the input and then widens, as on one host. */
static void
put_block(const blocks *self, uint8_t *place, const dl_tensor *input)
{
    uint8_t *narrow = self->hosts->flat.data;

    if (self->row.dtype == input->dtype) {
        dl_reduction_copy(place, input, self->call);
        return;
    }
    dl_reduction_copy(narrow, input, self->call);
    dl_reduce_widen((float *)(void *)place, input->dtype, narrow, input->count);
}

/* Reserves `hosts->flat` for the largest block, which put_block() widens from there. */
static dl_status
make_row(blocks *self, size_t count, bool is_widened)
{
    dl_hosts *hosts = self->hosts;
    const dl_tensor *inputs = self->call->inputs;
    size_t largest = 0;
    uint8_t *narrow;

    for (int rank = 0; rank < hosts->layout->size; rank++) {
        size_t size = dl_tensor_size(&inputs[rank]);
        largest = size > largest ? size : largest;
    }
    DL_TRY(dl_hosts_room(&hosts->flat, largest, &narrow));
    return dl_reduction_row(hosts, count, is_widened ? DL_FLOAT32 : inputs->dtype,
                            &self->row);
}

/* Copies the blocks to the row, if there is one, and sets the scratch lists of the hosts'
 * parts. */
static void
find_parts(const blocks *self)
{
    dl_hosts *hosts = self->hosts;
    size_t end = 0;

    for (int host = 0; host < hosts->layout->host_count; host++) {
        hosts->blocks[host] = self->has_row ? (uint8_t *)self->row.data + end
                                            : block_of(self, host, 0)->data;
        for (int i = 0; i < dl_layout_count(hosts->layout, host); i++) {
            const dl_tensor *input = block_of(self, host, i);
            if (self->has_row) {
                put_block(self, (uint8_t *)self->row.data + end, input);
            }
            end += input->count * self->row.item_size;
        }
        hosts->ends[host] = end;
    }
}

/* Returns whether the blocks need no row. */
static bool
are_plain(const blocks *self)
{
    const dl_layout *layout = self->hosts->layout;
    bool is_plain = layout->host_count == layout->size
                    && self->call->reduction != DL_PREMUL_SUM
                    && dl_tensor_is_plain(&self->call->tensor);

    for (int rank = 0; is_plain && rank < layout->size; rank++) {
        is_plain = dl_tensor_is_plain(&self->call->inputs[rank]);
    }
    return is_plain;
}

static dl_status
make_parts(blocks *self)
{
    const dl_tensor *inputs = self->call->inputs;
    size_t count = 0;

    for (int rank = 0; rank < self->hosts->layout->size; rank++) {
        count += inputs[rank].count;
    }
    dl_reduction chosen =
        dl_reduction_of(self->hosts, DL_REDUCE_SCATTER, inputs->dtype, count);
    self->run = chosen.run;
    self->row = *inputs;
    self->row.data = NULL;
    self->has_row = chosen.is_widened || !are_plain(self);
    if (self->has_row) {
        DL_TRY(make_row(self, count, chosen.is_widened));
    }
    find_parts(self);
    return DL_OK;
}

/* Distributes the leader's part of the row to the outputs of this host's ranks, through
 * the board. */
static dl_status
scatter_result(const blocks *self, const dl_op_context *op, const dl_tensor *output)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    dl_tensor *parts = hosts->locals[0];
    uint8_t *at = hosts->blocks[layout->host];

    for (int i = 0; i < dl_hosts_local_count(hosts); i++) {
        parts[i] = self->row;
        parts[i].data = at;
        parts[i].count = block_of(self, layout->host, i)->count;
        at += dl_tensor_size(&parts[i]);
    }
    dl_call call = {.op = DL_SCATTER,
                    .inputs = dl_layout_leads(layout) ? parts : NULL,
                    .tensor = *output,
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
scatter_narrowed(const blocks *self, const dl_op_context *op)
{
    const dl_tensor *output = &self->call->tensor;
    dl_hosts *hosts = self->hosts;
    dl_tensor wide = self->row;
    uint8_t *room;

    DL_TRY(dl_hosts_room(&hosts->incoming, output->count * 2 * sizeof(float), &room));
    wide.data = room;
    wide.count = output->count;
    uint8_t *narrow = room + output->count * sizeof(float);
    DL_TRY(scatter_result(self, op, &wide));
    dl_reduce_narrow(narrow, output->dtype, wide.data, output->count);
    dl_strided_scatter_part(output, narrow, 0, dl_tensor_size(output));
    return DL_OK;
}

dl_status
dl_hosts_reduce_scatter(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    blocks all = {.hosts = hosts, .call = call};
    int host = hosts->layout->host;

    DL_TRY(make_parts(&all));
    dl_call within = dl_reduction_call(&all.row, call->reduction);
    DL_TRY(dl_reduction_within(hosts, dl_hosts_first(hosts, op), &within));
    const dl_op_context *last = dl_hosts_last(hosts);
    dl_leaders between = dl_reduction_leaders(hosts, &within, -1);
    between.parts = hosts->blocks;
    between.ends = hosts->ends;
    between.scatters = true;
    between.target = all.has_row ? hosts->blocks[host] : call->tensor.data;
    if (dl_layout_leads(hosts->layout)) {
        DL_TRY(all.run(&between));
    }
    if (!all.has_row) {
        return DL_OK;
    }
    return all.row.dtype == call->tensor.dtype
               ? scatter_result(&all, last, &call->tensor)
               : scatter_narrowed(&all, last);
}
