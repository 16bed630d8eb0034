/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/hosts/leaders.h"
#include "tensor/strided.h"

/* An all_gather.  `row` has the blocks of the other hosts, contiguous, host after host. */
typedef struct gathered {
    dl_hosts *hosts;
    const dl_call *call;
    dl_bytes own; /* this host's blocks, contiguous */
    uint8_t *row;
} gathered;

/* Returns the block of the `at`th rank of a host. */
static const dl_tensor *
block_of(const gathered *self, int host, int at)
{
    return &self->call->outputs[dl_layout_ranks(self->hosts->layout, host)[at]];
}

static size_t
host_size(const gathered *self, int host)
{
    size_t size = 0;

    for (int i = 0; i < dl_layout_count(self->hosts->layout, host); i++) {
        size += dl_tensor_size(block_of(self, host, i));
    }
    return size;
}

/* Finds this host's blocks, all of which are in their outputs by now. */
static dl_status
pack_own(gathered *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_tensor *input = &self->call->tensor;
    int host = hosts->layout->host;
    uint8_t *room;

    self->own = (dl_bytes){input->data, host_size(self, host)};
    if (hosts->board == NULL && input->is_contiguous) {
        return DL_OK;
    }
    DL_TRY(dl_hosts_room(&hosts->flat, self->own.size, &room));
    self->own.data = room;
    for (int i = 0; i < dl_hosts_local_count(hosts); i++) {
        const dl_tensor *block = block_of(self, host, i);
        dl_strided_gather_part(room, block, 0, dl_tensor_size(block));
        room += dl_tensor_size(block);
    }
    return DL_OK;
}

/* Returns the place of another host's single, contiguous block on a rank that is alone on
 * its host, which needs no row; else NULL. */
static uint8_t *
target_of(const gathered *self, int host)
{
    const dl_hosts *hosts = self->hosts;
    const dl_tensor *block = block_of(self, host, 0);
    bool is_direct = hosts->board == NULL && dl_layout_count(hosts->layout, host) == 1
                     && block->is_contiguous;

    return is_direct ? block->data : NULL;
}

/* Sets the scratch lists of the hosts' parts, and returns the bytes of all. */
static size_t
find_parts(const gathered *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    uint8_t *at = self->row;
    size_t end = 0;

    for (int host = 0; host < layout->host_count; host++) {
        uint8_t *place = target_of(self, host);
        size_t size = host_size(self, host);
        hosts->blocks[host] = place == NULL ? at : place;
        at += host == layout->host || self->row == NULL ? 0 : size;
        hosts->ends[host] = end += size;
    }
    return end;
}

/* Every leader sends to every other at the same time: each block crosses each link once,
 * and no link waits for another one, as it would in a ring. */
dl_status
dl_gather_full(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;

    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        if (host != layout->host) {
            DL_TRY(dl_traffic_send(hosts->traffic, leader, self->data,
                                   dl_leaders_part(self, layout->host).size));
            DL_TRY(dl_traffic_receive(hosts->traffic, leader, self->parts[host],
                                      dl_leaders_part(self, host).size));
        }
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}

static dl_status
gather_between(gathered *self, size_t size)
{
    dl_hosts *hosts = self->hosts;

    DL_TRY(pack_own(self));
    const dl_leaders between = {.hosts = hosts,
                                .root = -1,
                                .data = (uint8_t *)(uintptr_t)self->own.data,
                                .parts = hosts->blocks,
                                .ends = hosts->ends};
    return dl_hosts_select(DL_ALL_GATHER, hosts->layout->host_count, size)(&between);
}

static void
unpack_blocks(const gathered *self)
{
    const dl_layout *layout = self->hosts->layout;
    const uint8_t *at = self->row;

    for (int host = 0; host < layout->host_count; host++) {
        int count = host == layout->host ? 0 : dl_layout_count(layout, host);
        for (int i = 0; i < count; i++) {
            const dl_tensor *block = block_of(self, host, i);
            size_t size = dl_tensor_size(block);
            if (target_of(self, host) == NULL) {
                dl_strided_scatter_part(block, at, 0, size);
            }
            at += size;
        }
    }
}

/* Gathers the blocks of this host into their outputs. */
static dl_status
gather_within(const gathered *self, const dl_op_context *phase)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    const dl_tensor *input = &self->call->tensor;
    const dl_tensor *output = &self->call->outputs[layout->rank];
    dl_call call = dl_call_all_gather(input, hosts->locals[0]);

    if (hosts->board == NULL && input->data != output->data) {
        dl_strided_copy_part(output, input, 0, dl_tensor_size(input));
    }
    if (hosts->board == NULL) {
        return DL_OK;
    }
    for (int i = 0; i < dl_hosts_local_count(hosts); i++) {
        hosts->locals[0][i] = *block_of(self, layout->host, i);
    }
    return dl_all_gather_board(hosts->exchange, phase, &call);
}

/* The blocks of other hosts cross the board as one array, in one phase rather than
 * one per block. */
dl_status
dl_hosts_all_gather(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    gathered all = {.hosts = hosts, .call = call};
    size_t total = find_parts(&all);
    size_t others = total - host_size(&all, hosts->layout->host);

    DL_TRY(dl_hosts_room(&hosts->incoming, others, &all.row));
    find_parts(&all);
    DL_TRY(gather_within(&all, dl_hosts_first(hosts, op)));
    const dl_op_context *last = dl_hosts_last(hosts);
    if (dl_layout_leads(hosts->layout)) {
        DL_TRY(gather_between(&all, total));
    }
    dl_tensor row = {
        .data = all.row,
        .count = others,
        .item_size = 1,
        .dtype = DL_OPAQUE,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
    DL_TRY(dl_hosts_broadcast_within(hosts, last, &row, 0));
    unpack_blocks(&all);
    return DL_OK;
}
