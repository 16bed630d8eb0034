/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/hosts.h"
#include "pg/cpu/algorithms/limits.h"
#include "tensor/strided.h"

/* Pieces that a leader may be ahead of the one below; a route's queue has room for
 * them. */
#define PIECES_AHEAD 8

/* The exchange of a broadcast between the leaders, on one of them. */
typedef struct spread {
    dl_hosts *hosts;
    int home; /* the root's host */
    uint8_t *data;
    size_t size;
} spread;

static dl_bytes
share_of(const spread *self, int host)
{
    size_t hosts = (size_t)self->hosts->layout->host_count;
    size_t share = dl_round_up((self->size + hosts - 1) / hosts, DL_HOSTS_SHARE_UNIT);
    size_t start = (size_t)host * share;
    size_t first = start < self->size ? start : self->size;
    size_t left = self->size - first;

    return (dl_bytes){self->data + first, left < share ? left : share};
}

/* Queues what goes to another leader, `out`, and what comes from it, `in`. */
static dl_status
queue_pair(const spread *self, int host, dl_bytes out, dl_bytes in)
{
    dl_traffic *traffic = self->hosts->traffic;
    int leader = dl_layout_leader(self->hosts->layout, host);

    DL_TRY(dl_traffic_send(traffic, leader, out.data, out.size));
    return dl_traffic_receive(traffic, leader, (uint8_t *)(uintptr_t)in.data, in.size);
}

/* Queues the first stage of a large array: the root's host sends each other host its
 * share. */
static dl_status
leave_home(const spread *self)
{
    const dl_layout *layout = self->hosts->layout;
    const dl_bytes nothing = {NULL, 0};

    for (int host = 0; host < layout->host_count; host++) {
        int to = layout->host == self->home ? host : layout->host;
        dl_bytes moved = share_of(self, to);
        if (host != layout->host) {
            DL_TRY(queue_pair(self, host, layout->host == self->home ? moved : nothing,
                              host == self->home ? moved : nothing));
        }
    }
    return DL_OK;
}

/* Queues the second stage: each host sends its share to all others but the root's host,
 * which has everything. */
static dl_status
pass_on(const spread *self)
{
    const dl_layout *layout = self->hosts->layout;
    const dl_bytes nothing = {NULL, 0};

    for (int host = 0; host < layout->host_count; host++) {
        dl_bytes out = host == self->home ? nothing : share_of(self, layout->host);
        dl_bytes in = layout->host == self->home ? nothing : share_of(self, host);
        if (host != layout->host) {
            DL_TRY(queue_pair(self, host, out, in));
        }
    }
    return DL_OK;
}

/* Two stages spare the root's link the load of all hosts but one. */
static dl_status
spread_shares(const spread *self)
{
    dl_traffic *traffic = self->hosts->traffic;

    DL_TRY(leave_home(self));
    DL_TRY(dl_traffic_wait(traffic, dl_traffic_next(traffic)));
    DL_TRY(pass_on(self));
    return dl_traffic_wait(traffic, dl_traffic_next(traffic));
}

static dl_bytes
piece_of(const spread *self, size_t piece)
{
    size_t start = piece * DL_HOSTS_ROUND;
    size_t left = self->size - start;

    return (dl_bytes){self->data + start,
                      left < DL_HOSTS_ROUND ? left : DL_HOSTS_ROUND};
}

/* Returns the leader of the host that is at `place` in the order from the root on. */
static int
leader_at(const spread *self, int place)
{
    const dl_layout *layout = self->hosts->layout;

    return dl_layout_leader(layout, (self->home + place) % layout->host_count);
}

/* Waits for a piece from the leader above, and expects those that may follow it. */
static dl_status
receive_piece(const spread *self, int above, size_t piece, size_t *expected)
{
    dl_traffic *traffic = self->hosts->traffic;

    while (*expected < piece + PIECES_AHEAD
           && *expected * DL_HOSTS_ROUND < self->size) {
        dl_bytes next = piece_of(self, *expected);
        DL_TRY(dl_traffic_expect(traffic, above, (uint8_t *)(uintptr_t)next.data,
                                 next.size, (uint32_t)(*expected - piece)));
        ++*expected;
    }
    return dl_traffic_wait(traffic, traffic->stage);
}

/* Pieces go down a binary tree, so that all levels of it work at the same time.  Where
 * data does not go one way, greetings compare the calls. */
static dl_status
spread_pieces(const spread *self)
{
    dl_traffic *traffic = self->hosts->traffic;
    int count = self->hosts->layout->host_count;
    int place = (self->hosts->layout->host - self->home + count) % count;
    size_t expected = 0;

    DL_TRY(dl_hosts_greet(self->hosts));
    self->hosts->is_below = self->hosts->traffic->is_one_way && place > 2;
    for (size_t piece = 0; piece * DL_HOSTS_ROUND < self->size; piece++) {
        dl_bytes part = piece_of(self, piece);
        if (place > 0) {
            int above = leader_at(self, (place - 1) / 2);
            DL_TRY(receive_piece(self, above, piece, &expected));
        } else if (piece >= PIECES_AHEAD) {
            DL_TRY(dl_traffic_wait(traffic, traffic->stage - PIECES_AHEAD));
        }
        for (int below = 2 * place + 1; below <= 2 * place + 2 && below < count;
             below++) {
            DL_TRY(
                dl_traffic_send(traffic, leader_at(self, below), part.data, part.size));
        }
        dl_traffic_next(traffic);
    }
    return dl_traffic_wait(traffic, dl_traffic_next(traffic));
}

/* The whole array goes down a binomial tree: a host that is at a place in the order from
 * the root on gets it from the one whose place has the lowest bit cleared. */
static dl_status
spread_whole(const spread *self)
{
    dl_hosts *hosts = self->hosts;
    int count = hosts->layout->host_count;
    int place = (hosts->layout->host - self->home + count) % count;
    int bit = 1;

    DL_TRY(dl_hosts_greet(hosts));
    while (bit < count && (place & bit) == 0) {
        bit *= 2;
    }
    if (place > 0) {
        hosts->is_below = hosts->traffic->is_one_way && place != bit;
        DL_TRY(dl_traffic_receive(hosts->traffic, leader_at(self, place - bit),
                                  self->data, self->size));
        DL_TRY(dl_traffic_wait(hosts->traffic, hosts->traffic->stage));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (place + bit < count) {
            DL_TRY(dl_traffic_send(hosts->traffic, leader_at(self, place + bit),
                                   self->data, self->size));
        }
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}

/* Runs one of these, chosen by the size and the number of hosts. */
static dl_status
run_spread(const spread *self)
{
    size_t hosts = (size_t)self->hosts->layout->host_count;

    if (hosts == 2 || self->size < DL_HOSTS_PIECES_LEAST) {
        return spread_whole(self);
    }
    return self->size / hosts < DL_HOSTS_SHARE_LEAST ? spread_pieces(self)
                                                     : spread_shares(self);
}

/* Runs on leaders.  Strided tensors are sent and received through a contiguous copy. */
static dl_status
broadcast_between(dl_hosts *hosts, const dl_tensor *tensor, int home)
{
    spread between = {hosts, home, tensor->data, dl_tensor_size(tensor)};
    bool is_home = hosts->layout->host == home;

    if (!tensor->is_contiguous) {
        DL_TRY(dl_hosts_room(&hosts->flat, between.size, &between.data));
        if (is_home) {
            dl_strided_gather_part(between.data, tensor, 0, between.size);
        }
    }
    DL_TRY(run_spread(&between));
    if (!tensor->is_contiguous && !is_home) {
        dl_strided_scatter_part(tensor, between.data, 0, between.size);
    }
    return DL_OK;
}

/* On the root's host the first phase distributes the data to all ranks, the leader
 * among them; on other hosts the last phase does.  The other phase of each host
 * only compares the calls. */
dl_status
dl_hosts_broadcast(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    const dl_layout *layout = hosts->layout;
    int home = layout->host_of[call->root];
    bool is_home = layout->host == home;
    const dl_op_context *first = dl_hosts_first_one_way(hosts, op, DL_BROADCAST);

    DL_TRY(is_home ? dl_hosts_broadcast_within(hosts, first, &call->tensor,
                                               layout->local_rank_of[call->root])
                   : dl_hosts_arrive(hosts, first));
    const dl_op_context *last = dl_hosts_last(hosts);
    if (dl_layout_leads(layout)) {
        DL_TRY(broadcast_between(hosts, &call->tensor, home));
    }
    return is_home ? dl_hosts_arrive(hosts, last)
                   : dl_hosts_broadcast_within(hosts, last, &call->tensor, 0);
}
