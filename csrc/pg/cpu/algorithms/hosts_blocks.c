/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/hosts.h"
#include "tensor/strided.h"

/* An all_gather; `row` has the blocks of the other hosts, contiguous, host after
 * host. */
typedef struct gathered {
    dl_hosts *hosts;
    const dl_call *call;
    uint8_t *row;
    size_t size;
    bool is_collected;
} gathered;

static size_t
host_size(const gathered *self, int host)
{
    const dl_layout *layout = self->hosts->layout;
    size_t size = 0;

    for (int i = 0; i < dl_layout_count(layout, host); i++) {
        size += dl_tensor_size(&self->call->outputs[dl_layout_ranks(layout, host)[i]]);
    }
    return size;
}

/* Sets `*own` to this host's blocks, contiguous.  All of them are in their outputs by
 * now. */
static dl_status
pack_own(const gathered *self, dl_bytes *own)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    const dl_tensor *input = &self->call->tensor;
    uint8_t *room;

    own->size = host_size(self, layout->host);
    own->data = input->data;
    if (hosts->board == NULL && input->is_contiguous) {
        return DL_OK;
    }
    DL_TRY(dl_hosts_room(&hosts->flat, own->size, &room));
    own->data = room;
    for (int i = 0; i < dl_hosts_local_count(hosts); i++) {
        const dl_tensor *block =
            &self->call->outputs[dl_layout_ranks(layout, layout->host)[i]];
        dl_strided_gather_part(room, block, 0, dl_tensor_size(block));
        room += dl_tensor_size(block);
    }
    return DL_OK;
}

/* Returns the output that another host's data is received into, or NULL if it goes
 * through the row.  The former needs a single, contiguous block, and a rank that is
 * alone on its host. */
static const dl_tensor *
direct_place(const gathered *self, int host)
{
    const dl_layout *layout = self->hosts->layout;
    const dl_tensor *block = &self->call->outputs[dl_layout_leader(layout, host)];
    bool is_direct = !self->is_collected && self->hosts->board == NULL
                     && dl_layout_count(layout, host) == 1 && block->is_contiguous;

    return is_direct ? block : NULL;
}

/* Every leader sends to every other at the same time: each block crosses each link
 * once, and no link waits for another one, as it would in a ring. */
static dl_status
gather_between(const gathered *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    uint8_t *at = self->row;
    dl_bytes own;

    DL_TRY(pack_own(self, &own));
    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        const dl_tensor *direct = direct_place(self, host);
        size_t size = host_size(self, host);
        if (host == layout->host) {
            continue;
        }
        DL_TRY(dl_traffic_send(hosts->traffic, leader, own.data, own.size));
        DL_TRY(dl_traffic_receive(hosts->traffic, leader,
                                  direct == NULL ? at : direct->data, size));
        at += size;
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}

/* Small blocks pass through other leaders, behind the row; the row is in the order of
 * the hosts. */
static dl_status
collect_between(const gathered *self)
{
    dl_hosts *hosts = self->hosts;
    int count = hosts->layout->host_count;
    uint8_t *collected = self->row + self->size;
    uint8_t *at = self->row;
    size_t end = 0;
    dl_bytes own;

    DL_TRY(pack_own(self, &own));
    for (int i = 0; i < count; i++) {
        hosts->starts[i] = end;
        end += host_size(self, dl_hosts_block_host(hosts, i));
    }
    hosts->starts[count] = end;
    dl_hosts_copy(collected, own.data, own.size);
    DL_TRY(dl_hosts_collect(hosts, collected, hosts->starts));
    for (int host = 0; host < count; host++) {
        int index = (host - hosts->layout->host + count) % count;
        size_t size = hosts->starts[index + 1] - hosts->starts[index];
        if (index > 0) {
            dl_hosts_copy(at, collected + hosts->starts[index], size);
            at += size;
        }
    }
    return DL_OK;
}

/* Visits the blocks in the order in which gather_between() received them. */
static void
unpack(const gathered *self)
{
    const dl_layout *layout = self->hosts->layout;
    const uint8_t *at = self->row;

    for (int host = 0; host < layout->host_count; host++) {
        int count = host == layout->host ? 0 : dl_layout_count(layout, host);
        for (int i = 0; i < count; i++) {
            const dl_tensor *block =
                &self->call->outputs[dl_layout_ranks(layout, host)[i]];
            size_t size = dl_tensor_size(block);
            if (direct_place(self, host) == NULL) {
                dl_strided_scatter_part(block, at, 0, size);
            }
            at += size;
        }
    }
}

/* Copies the block that a rank alone on its host has for itself. */
static void
copy_own_block(const dl_tensor *input, const dl_tensor *output)
{
    if (input->data != output->data) {
        dl_strided_copy_part(output, input, 0, dl_tensor_size(input));
    }
}

/* Gathers the blocks of this host into their outputs. */
static dl_status
gather_within(const gathered *self, const dl_op_context *phase)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    const dl_tensor *input = &self->call->tensor;
    dl_call call = dl_call_all_gather(input, hosts->locals[0]);

    if (hosts->board == NULL) {
        copy_own_block(input, &self->call->outputs[layout->rank]);
        return DL_OK;
    }
    for (int i = 0; i < dl_hosts_local_count(hosts); i++) {
        hosts->locals[0][i] =
            self->call->outputs[dl_layout_ranks(layout, layout->host)[i]];
    }
    return dl_all_gather_board(hosts->exchange, phase, &call);
}

/* The blocks of other hosts cross the board as one array, in one phase rather than
 * one per block. */
dl_status
dl_hosts_all_gather(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    gathered all = {.hosts = hosts, .call = call};

    for (int host = 0; host < hosts->layout->host_count; host++) {
        all.size += host == hosts->layout->host ? 0 : host_size(&all, host);
    }
    size_t total = all.size + host_size(&all, hosts->layout->host);
    all.is_collected = dl_hosts_passes_on(hosts, total);
    DL_TRY(dl_hosts_room(&hosts->incoming, all.size + (all.is_collected ? total : 0),
                         &all.row));
    DL_TRY(gather_within(&all, dl_hosts_first(hosts, op)));
    const dl_op_context *last = dl_hosts_last(hosts);
    if (dl_layout_leads(hosts->layout)) {
        DL_TRY(all.is_collected ? collect_between(&all) : gather_between(&all));
    }
    dl_tensor row = {
        .data = all.row,
        .count = all.size,
        .item_size = 1,
        .dtype = DL_OPAQUE,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
    DL_TRY(dl_hosts_broadcast_within(hosts, last, &row, 0));
    unpack(&all);
    return DL_OK;
}

/* Blocks that go directly between ranks of different hosts in one operation.  By way of
 * the leaders they would have to be packed, passed on and unpacked on both hosts, and
 * each would still cross the network once.  The price is a connection between each two
 * ranks that have a block for each other. */
typedef struct direct {
    dl_hosts *hosts;
    const dl_tensor *outgoing; /* by rank */
    const dl_tensor *incoming; /* by rank; NULL: none */
    int source;                /* the only rank that sends; -1: all do */
    int target;                /* the only one that receives; -1: all do */
    uint8_t *flat;             /* room for contiguous copies of strided tensors */
} direct;

static bool
is_remote(const direct *self, int rank)
{
    const dl_layout *layout = self->hosts->layout;

    return layout->host_of[rank] != layout->host;
}

/* Returns whether the operation has a block from `source` for `target`. */
static bool
is_sent(const direct *self, int source, int target)
{
    return (self->source < 0 || self->source == source)
           && (self->target < 0 || self->target == target);
}

static const dl_tensor *
outgoing_to(const direct *self, int rank)
{
    bool is_any =
        is_remote(self, rank) && is_sent(self, self->hosts->layout->rank, rank);

    return is_any ? &self->outgoing[self->target < 0 ? rank : 0] : NULL;
}

static const dl_tensor *
incoming_from(const direct *self, int rank)
{
    bool is_any =
        is_remote(self, rank) && is_sent(self, rank, self->hosts->layout->rank);

    return is_any ? &self->incoming[self->source < 0 ? rank : 0] : NULL;
}

/* Returns the bytes that a contiguous copy of the tensor takes; 0 if it needs none. */
static size_t
flat_size(const dl_tensor *tensor)
{
    return tensor == NULL || tensor->is_contiguous ? 0 : dl_tensor_size(tensor);
}

/* Returns the tensor's data if it is contiguous, else the place of its copy, which is
 * taken from `*flat`. */
static uint8_t *
row_of(const dl_tensor *tensor, uint8_t **flat)
{
    uint8_t *row = tensor->is_contiguous ? tensor->data : *flat;

    *flat += flat_size(tensor);
    return row;
}

static dl_status
queue_all(direct *self)
{
    dl_traffic *traffic = self->hosts->traffic;
    uint8_t *flat = self->flat;

    for (int rank = 0; rank < self->hosts->layout->size; rank++) {
        const dl_tensor *out = outgoing_to(self, rank);
        if (out != NULL) {
            uint8_t *row = row_of(out, &flat);
            if (row != out->data) {
                dl_strided_gather_part(row, out, 0, dl_tensor_size(out));
            }
            DL_TRY(dl_traffic_send(traffic, rank, row, dl_tensor_size(out)));
        }
        const dl_tensor *in = incoming_from(self, rank);
        if (in != NULL) {
            uint8_t *row = row_of(in, &flat);
            DL_TRY(dl_traffic_receive(traffic, rank, row, dl_tensor_size(in)));
        }
    }
    return DL_OK;
}

/* Visits the tensors in the order of queue_all(), so that row_of() finds the same
 * copies. */
static void
unpack_direct(const direct *self)
{
    uint8_t *flat = self->flat;

    for (int rank = 0; rank < self->hosts->layout->size; rank++) {
        const dl_tensor *out = outgoing_to(self, rank);
        const dl_tensor *in = incoming_from(self, rank);
        if (out != NULL) {
            (void)row_of(out, &flat);
        }
        if (in != NULL) {
            const uint8_t *row = row_of(in, &flat);
            if (row != in->data) {
                dl_strided_scatter_part(in, row, 0, dl_tensor_size(in));
            }
        }
    }
}

/* Called after the host's first phase; holds the last one. */
static dl_status
run_direct(direct *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_op_context *last = dl_hosts_last(hosts);
    size_t size = 0;

    for (int rank = 0; rank < hosts->layout->size; rank++) {
        size += flat_size(outgoing_to(self, rank));
        size += flat_size(incoming_from(self, rank));
    }
    DL_TRY(dl_hosts_room(&hosts->flat, size, &self->flat));
    /* Without a root, all ranks have blocks for each other, which compare the calls. */
    if (self->source >= 0 || self->target >= 0) {
        DL_TRY(dl_hosts_greet(hosts));
    }
    DL_TRY(queue_all(self));
    DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
    unpack_direct(self);
    return dl_hosts_arrive(hosts, last);
}

/* Returns the tensors of this host's ranks, by local rank, in the scratch list `side`;
 * NULL for NULL. */
static const dl_tensor *
locals_of(dl_hosts *hosts, const dl_tensor *tensors, int side)
{
    const dl_layout *layout = hosts->layout;

    for (int i = 0; tensors != NULL && i < dl_hosts_local_count(hosts); i++) {
        hosts->locals[side][i] = tensors[dl_layout_ranks(layout, layout->host)[i]];
    }
    return tensors == NULL ? NULL : hosts->locals[side];
}

dl_status
dl_hosts_gather(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    const dl_layout *layout = hosts->layout;
    bool is_home = layout->host_of[call->root] == layout->host;
    direct between = {.hosts = hosts,
                      .outgoing = &call->tensor,
                      .incoming = call->outputs,
                      .source = -1,
                      .target = call->root};
    const dl_op_context *first = dl_hosts_first_one_way(hosts, op, DL_GATHER);

    if (is_home && hosts->board != NULL) {
        dl_call within = *call;
        within.root = layout->local_rank_of[call->root];
        within.outputs = locals_of(hosts, call->outputs, 0);
        DL_TRY(dl_gather_board(hosts->exchange, first, &within));
    } else {
        DL_TRY(dl_hosts_arrive(hosts, first));
    }
    if (is_home && hosts->board == NULL) {
        copy_own_block(&call->tensor, &call->outputs[layout->rank]);
    }
    return run_direct(&between);
}

dl_status
dl_hosts_scatter(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    const dl_layout *layout = hosts->layout;
    bool is_home = layout->host_of[call->root] == layout->host;
    direct between = {.hosts = hosts,
                      .outgoing = call->inputs,
                      .incoming = &call->tensor,
                      .source = call->root,
                      .target = -1};
    const dl_op_context *first = dl_hosts_first_one_way(hosts, op, DL_SCATTER);

    if (is_home && hosts->board != NULL) {
        dl_call within = *call;
        within.root = layout->local_rank_of[call->root];
        within.inputs = locals_of(hosts, call->inputs, 0);
        DL_TRY(dl_scatter_board(hosts->exchange, first, &within));
    } else {
        DL_TRY(dl_hosts_arrive(hosts, first));
    }
    if (is_home && hosts->board == NULL) {
        copy_own_block(&call->inputs[layout->rank], &call->tensor);
    }
    return run_direct(&between);
}

dl_status
dl_hosts_all_to_all(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    int rank = hosts->layout->rank;
    direct between = {.hosts = hosts,
                      .outgoing = call->inputs,
                      .incoming = call->outputs,
                      .source = -1,
                      .target = -1};
    const dl_op_context *first = dl_hosts_first(hosts, op);

    if (hosts->board != NULL) {
        dl_call within = {.op = DL_ALL_TO_ALL,
                          .inputs = locals_of(hosts, call->inputs, 0),
                          .outputs = locals_of(hosts, call->outputs, 1)};
        DL_TRY(dl_all_to_all_board(hosts->exchange, first, &within));
    } else {
        copy_own_block(&call->inputs[rank], &call->outputs[rank]);
    }
    return run_direct(&between);
}
