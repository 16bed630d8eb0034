/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/hosts_fold.h"

/* Bytes that a leader sends, to all others together, up to which dl_host_fold_small()
 * is faster: one way across the network with the whole array instead of two with a
 * share each.  It is what a link carries in half a round trip. */
#define SMALL_LIMIT ((size_t)128 << 10)

/* Limit of a message in a round: it stays in a core's own cache, along with the data
 * that it is folded into, until it is folded and sent on. */
#define ROUND_MESSAGE ((size_t)128 << 10)

/* Rounds under way at a time, so that a link has data to carry while an answer is on
 * its way, and while the rank at its other end does not run for a while.  Each of them
 * may have a scatter and a gather in the queues. */
#define ROUNDS_AHEAD (DL_ROUTE_QUEUE / 2)

#define UNIT 64

static size_t
round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static size_t
least(size_t left, size_t right)
{
    return left < right ? left : right;
}

dl_host_fold
dl_host_fold_of(dl_hosts *hosts, const dl_all_reduce_args *args, int root)
{
    const dl_layout *layout = hosts->layout;
    dl_host_fold made = {
        .hosts = hosts,
        .fold = dl_fold_of(args, layout->host_count),
        .divisor = 1,
        .root = root,
        .data = args->tensor.data,
        .size = dl_tensor_size(&args->tensor),
    };

    /* The fold would divide by the number of hosts. */
    if (args->op == DL_AVG && layout->host_count < layout->size) {
        made.fold.op = DL_SUM;
        made.divisor = layout->size;
    }
    return made;
}

/* Folds the parts of all hosts into `own`, which has this host's part; those of the
 * others are `stride` bytes apart at `slots`.  As only the first two sources of a fold
 * may be its target, the others fold into this host's slot, which is unused, and copy
 * from there. */
static void
fold_slots(const dl_host_fold *self, uint8_t *slots, size_t stride, dl_bytes own)
{
    int host = self->hosts->layout->host;
    uint8_t *place = (uint8_t *)(uintptr_t)own.data;
    bool is_late = host > 1;
    dl_fold_sources sources = {
        .first = slots, .stride = stride, .own_rank = host, .own = own.data};

    if (own.size == 0) {
        return;
    }
    dl_fold_run(&self->fold, &sources, own.size,
                is_late ? slots + (size_t)host * stride : place,
                is_late ? place : NULL);
    if (self->divisor > 1) {
        dl_reduce_divide(place, self->fold.dtype, own.size / self->fold.item_size,
                         self->divisor);
    }
}

/* A host that does not get the result folds its share all the same. */
static bool
wants_result(const dl_host_fold *self, int host)
{
    return self->root < 0 || self->root == host;
}

static size_t
size_for(const dl_host_fold *self, int host)
{
    return wants_result(self, host) ? self->size : 0;
}

dl_status
dl_host_fold_small(const dl_host_fold *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    size_t stride = round_up(self->size, UNIT);
    uint8_t *slots;

    DL_TRY(
        dl_hosts_room(&hosts->incoming, stride * (size_t)layout->host_count, &slots));
    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        if (host == layout->host) {
            continue;
        }
        DL_TRY(
            dl_traffic_send(hosts->traffic, leader, self->data, size_for(self, host)));
        DL_TRY(dl_traffic_receive(hosts->traffic, leader, slots + (size_t)host * stride,
                                  size_for(self, layout->host)));
    }
    DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
    if (wants_result(self, layout->host)) {
        fold_slots(self, slots, stride, (dl_bytes){self->data, self->size});
    }
    return DL_OK;
}

/* Each round takes the next stretch of the array and divides it into one share per
 * host:
 *
 *     scatter   each leader sends each other host its share
 *     fold      and folds its own
 *     gather    each leader sends its result to the others, or to the root
 *
 * The order on every link is: scatter 0, 1, ... 11, gather 0, scatter 12, gather 1,
 * ...: the data for the next rounds is under way while one is folded. */
typedef struct rounds {
    const dl_host_fold *base;
    uint8_t *slots; /* of the rounds under way */
    size_t stretch;
    size_t share; /* largest share of a stretch, in bytes */
    uint64_t count;
} rounds;

/* Returns the share of `host` in a round. */
static dl_bytes
share_of(const rounds *all, uint64_t round, int host)
{
    const dl_host_fold *base = all->base;
    size_t start = round * all->stretch;
    size_t size = least(base->size - start, all->stretch);
    size_t first = least((size_t)host * all->share, size);

    return (dl_bytes){base->data + start + first, least(all->share, size - first)};
}

static uint8_t *
slots_of(const rounds *all, uint64_t round)
{
    size_t hosts = (size_t)all->base->hosts->layout->host_count;

    return all->slots + round % ROUNDS_AHEAD * hosts * all->share;
}

static dl_status
scatter(const rounds *all, uint64_t round, uint32_t *stage)
{
    dl_hosts *hosts = all->base->hosts;
    const dl_layout *layout = hosts->layout;
    dl_bytes own = share_of(all, round, layout->host);

    for (int host = 0; host < layout->host_count; host++) {
        dl_bytes theirs = share_of(all, round, host);
        uint8_t *slot = slots_of(all, round) + (size_t)host * all->share;
        if (host != layout->host) {
            int leader = dl_layout_leader(layout, host);
            DL_TRY(dl_traffic_send(hosts->traffic, leader, theirs.data, theirs.size));
            DL_TRY(dl_traffic_receive(hosts->traffic, leader, slot, own.size));
        }
    }
    *stage = dl_traffic_next(hosts->traffic);
    return DL_OK;
}

static dl_status
gather(const rounds *all, uint64_t round, uint32_t *stage)
{
    const dl_host_fold *base = all->base;
    dl_hosts *hosts = base->hosts;
    const dl_layout *layout = hosts->layout;
    dl_bytes own = share_of(all, round, layout->host);

    for (int host = 0; host < layout->host_count; host++) {
        dl_bytes theirs = share_of(all, round, host);
        int leader = dl_layout_leader(layout, host);
        if (host != layout->host && wants_result(base, host)) {
            DL_TRY(dl_traffic_send(hosts->traffic, leader, own.data, own.size));
        }
        if (host != layout->host && wants_result(base, layout->host)) {
            DL_TRY(dl_traffic_receive(hosts->traffic, leader,
                                      (uint8_t *)(uintptr_t)theirs.data, theirs.size));
        }
    }
    *stage = dl_traffic_next(hosts->traffic);
    return DL_OK;
}

static dl_status
run_rounds(const rounds *all)
{
    dl_hosts *hosts = all->base->hosts;
    uint32_t scattered[ROUNDS_AHEAD] = {0};
    uint32_t last = 0;
    uint64_t next = 0;

    for (uint64_t round = 0; round < all->count; round++) {
        for (; next < all->count && next < round + ROUNDS_AHEAD; next++) {
            DL_TRY(scatter(all, next, &scattered[next % ROUNDS_AHEAD]));
        }
        DL_TRY(dl_traffic_wait(hosts->traffic, scattered[round % ROUNDS_AHEAD]));
        fold_slots(all->base, slots_of(all, round), all->share,
                   share_of(all, round, hosts->layout->host));
        DL_TRY(gather(all, round, &last));
    }
    return dl_traffic_wait(hosts->traffic, last);
}

dl_status
dl_host_fold_large(const dl_host_fold *self)
{
    size_t hosts = (size_t)self->hosts->layout->host_count;
    size_t share = round_up((self->size + hosts - 1) / hosts, UNIT);
    rounds all = {.base = self, .share = least(share, ROUND_MESSAGE)};

    all.stretch = all.share * hosts;
    all.count = (self->size + all.stretch - 1) / all.stretch;
    DL_TRY(dl_hosts_room(&self->hosts->incoming, ROUNDS_AHEAD * hosts * all.share,
                         &all.slots));
    return run_rounds(&all);
}

dl_status
dl_host_fold_run(const dl_host_fold *self)
{
    size_t others = (size_t)self->hosts->layout->host_count - 1;

    return self->size * others <= SMALL_LIMIT ? dl_host_fold_small(self)
                                              : dl_host_fold_large(self);
}

/* Does not work in rounds: each host receives only its share of the array, and passes
 * nothing on afterwards. */
dl_status
dl_host_fold_scatter(const dl_host_fold *self, const size_t *starts)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    size_t own = starts[layout->host + 1] - starts[layout->host];
    size_t stride = round_up(own, UNIT);
    uint8_t *slots;

    DL_TRY(
        dl_hosts_room(&hosts->incoming, stride * (size_t)layout->host_count, &slots));
    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        if (host == layout->host) {
            continue;
        }
        DL_TRY(dl_traffic_send(hosts->traffic, leader, self->data + starts[host],
                               starts[host + 1] - starts[host]));
        DL_TRY(dl_traffic_receive(hosts->traffic, leader, slots + (size_t)host * stride,
                                  own));
    }
    DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
    fold_slots(self, slots, stride, (dl_bytes){self->data + starts[layout->host], own});
    return DL_OK;
}
