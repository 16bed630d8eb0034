/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/hosts/leaders.h"
#include "tensor/strided.h"

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
    size_t least;              /* blocks of at most so many bytes are not moved */
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
block_to_move(const direct *self, const dl_tensor *block)
{
    return self->least == 0 || dl_tensor_size(block) > self->least ? block : NULL;
}

static const dl_tensor *
outgoing_to(const direct *self, int rank)
{
    return is_remote(self, rank) && is_sent(self, self->hosts->layout->rank, rank)
               ? block_to_move(self, &self->outgoing[self->target < 0 ? rank : 0])
               : NULL;
}

static const dl_tensor *
incoming_from(const direct *self, int rank)
{
    return is_remote(self, rank) && is_sent(self, rank, self->hosts->layout->rank)
               ? block_to_move(self, &self->incoming[self->source < 0 ? rank : 0])
               : NULL;
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

static dl_status
exchange_blocks(direct *self)
{
    dl_hosts *hosts = self->hosts;
    size_t size = 0;

    for (int rank = 0; rank < hosts->layout->size; rank++) {
        size += flat_size(outgoing_to(self, rank));
        size += flat_size(incoming_from(self, rank));
    }
    DL_TRY(dl_hosts_room(&hosts->flat, size, &self->flat));
    DL_TRY(queue_all(self));
    DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
    unpack_direct(self);
    return DL_OK;
}

dl_status
dl_exchange_larger(const dl_leaders *self, size_t least)
{
    direct between = {.hosts = self->hosts,
                      .outgoing = self->call->inputs,
                      .incoming = self->call->outputs,
                      .source = -1,
                      .target = -1,
                      .least = least};

    return exchange_blocks(&between);
}

dl_status
dl_exchange_full(const dl_leaders *self)
{
    return dl_exchange_larger(self, 0);
}

/* Copies the block that a rank alone on its host has for itself. */
static void
copy_own_block(const dl_tensor *input, const dl_tensor *output)
{
    if (input->data != output->data) {
        dl_strided_copy_part(output, input, 0, dl_tensor_size(input));
    }
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

/* A gather or a scatter.  The ranks of the root's host move theirs through the board, in
 * which the root's list has those of this host only. */
static dl_status
run_rooted(dl_hosts *hosts, const dl_op_context *op, const dl_call *call,
           direct *between)
{
    const dl_layout *layout = hosts->layout;
    bool is_gather = call->op == DL_GATHER;
    bool is_home = layout->host_of[call->root] == layout->host;
    const dl_op_context *first = dl_hosts_first_one_way(hosts, op, call->op);

    if (is_home && hosts->board != NULL) {
        dl_call within = *call;
        within.root = layout->local_rank_of[call->root];
        within.inputs = locals_of(hosts, call->inputs, 0);
        within.outputs = locals_of(hosts, call->outputs, 0);
        DL_TRY(is_gather ? dl_gather_board(hosts->exchange, first, &within)
                         : dl_scatter_board(hosts->exchange, first, &within));
    } else {
        DL_TRY(dl_hosts_arrive(hosts, first));
    }
    if (is_home && hosts->board == NULL && is_gather) {
        copy_own_block(&call->tensor, &call->outputs[layout->rank]);
    } else if (is_home && hosts->board == NULL) {
        copy_own_block(&call->inputs[layout->rank], &call->tensor);
    }
    const dl_op_context *last = dl_hosts_last(hosts);
    DL_TRY(dl_hosts_greet(hosts));
    DL_TRY(exchange_blocks(between));
    return dl_hosts_arrive(hosts, last);
}

dl_status
dl_hosts_gather(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    direct between = {.hosts = hosts,
                      .outgoing = &call->tensor,
                      .incoming = call->outputs,
                      .source = -1,
                      .target = call->root};

    return run_rooted(hosts, op, call, &between);
}

dl_status
dl_hosts_scatter(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    direct between = {.hosts = hosts,
                      .outgoing = call->inputs,
                      .incoming = &call->tensor,
                      .source = call->root,
                      .target = -1};

    return run_rooted(hosts, op, call, &between);
}

dl_status
dl_hosts_all_to_all(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    const dl_leaders between = {.hosts = hosts, .call = call};
    int rank = hosts->layout->rank;
    const dl_op_context *first = dl_hosts_first(hosts, op);

    if (hosts->board != NULL) {
        dl_call within = {.op = DL_ALL_TO_ALL,
                          .inputs = locals_of(hosts, call->inputs, 0),
                          .outputs = locals_of(hosts, call->outputs, 1)};
        DL_TRY(dl_all_to_all_board(hosts->exchange, first, &within));
    } else {
        copy_own_block(&call->inputs[rank], &call->outputs[rank]);
    }
    const dl_op_context *last = dl_hosts_last(hosts);
    DL_TRY(dl_hosts_all_to_all_between(&between));
    return dl_hosts_arrive(hosts, last);
}
