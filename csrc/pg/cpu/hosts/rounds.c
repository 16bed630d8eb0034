/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

/* Rounds under way at a time, so that a link has data to carry while an answer is on its
 * way, and while the rank at its other end does not run for a while.  Each of them may
 * have a scatter and a gather in the queues. */
#define AHEAD_MOST (DL_ROUTE_QUEUE / 2)
#define AHEAD_LEAST 2

/* Room for all rounds under way, unless their pieces would be too small. */
#define ROOM ((size_t)4 << 20)

/* Large pieces are fewer messages; those of many hosts would not fit into a core's own
 * cache. */
#define PIECE_MOST ((size_t)512 << 10)
#define PIECE_LEAST ((size_t)128 << 10)

/* The largest array that goes to the root of more than two hosts, to be folded there. */
#define WHOLE_LIMIT ((size_t)64 << 10)

/* A reduction of a part for each host, in rounds of a piece of each part:
 *
 *     scatter   each leader sends each other host a piece of its part
 *     fold      and folds its own, in the order of the hosts
 *     gather    each leader sends its result to the others, or to the root
 *
 * The order on every link is: scatter 0, 1, ... 11, gather 0, scatter 12, gather 1,
 * ...: the data for the next rounds is under way while one is folded.  In a
 * reduce_scatter nothing is gathered.
 *
 * Of two hosts, each that gets the result folds everything, and nothing is gathered: as
 * many bytes cross the network, and only once.  So does the root of more, if it is
 * little. */
typedef struct rounds {
    dl_leaders base;
    uint8_t *slots; /* of the rounds under way */
    size_t piece;   /* largest piece of a part */
    uint64_t ahead;
    uint64_t count;
} rounds;

static dl_bytes
piece_of(const rounds *all, uint64_t round, int host)
{
    dl_bytes part = dl_leaders_part(&all->base, host);
    size_t first = dl_least(round * all->piece, part.size);

    return (dl_bytes){part.data + first, dl_least(all->piece, part.size - first)};
}

static uint8_t *
slots_of(const rounds *all, uint64_t round)
{
    size_t hosts = (size_t)all->base.hosts->layout->host_count;

    return all->slots + round % all->ahead * hosts * all->piece;
}

/* Returns whether a piece goes to `host`: an empty one if only to compare the calls. */
static bool
is_scattered(const rounds *all, uint64_t round, int host)
{
    const dl_leaders *base = &all->base;

    return piece_of(all, round, host).size > 0
           || (round == 0 && (!base->hosts->traffic->is_one_way || base->root == host));
}

static dl_status
queue_scatter(const rounds *all, uint64_t round, uint32_t *stage)
{
    dl_hosts *hosts = all->base.hosts;
    const dl_layout *layout = hosts->layout;
    dl_bytes own = piece_of(all, round, layout->host);

    for (int host = 0; host < layout->host_count; host++) {
        dl_bytes theirs = piece_of(all, round, host);
        int leader = dl_layout_leader(layout, host);
        if (host != layout->host && is_scattered(all, round, host)) {
            DL_TRY(dl_traffic_send(hosts->traffic, leader, theirs.data, theirs.size));
        }
        if (host != layout->host && is_scattered(all, round, layout->host)) {
            DL_TRY(dl_traffic_receive(hosts->traffic, leader,
                                      slots_of(all, round) + (size_t)host * all->piece,
                                      own.size));
        }
    }
    *stage = dl_traffic_next(hosts->traffic);
    return DL_OK;
}

static dl_status
queue_gather(const rounds *all, uint64_t round, uint32_t *stage)
{
    const dl_leaders *base = &all->base;
    dl_hosts *hosts = base->hosts;
    const dl_layout *layout = hosts->layout;
    dl_bytes own = piece_of(all, round, layout->host);

    for (int host = 0; !base->scatters && host < layout->host_count; host++) {
        dl_bytes theirs = piece_of(all, round, host);
        int leader = dl_layout_leader(layout, host);
        if (host == layout->host) {
            continue;
        }
        if (own.size > 0 && dl_leaders_gets_result(base, host)) {
            DL_TRY(dl_traffic_send(hosts->traffic, leader, own.data, own.size));
        }
        if (theirs.size > 0 && dl_leaders_gets_result(base, layout->host)) {
            DL_TRY(dl_traffic_receive(hosts->traffic, leader,
                                      (uint8_t *)(uintptr_t)theirs.data, theirs.size));
        }
    }
    *stage = dl_traffic_next(hosts->traffic);
    return DL_OK;
}

/* Folds the pieces of all hosts for this one.  As only the first two sources of a fold may
 * be its target, the others fold into this host's slot, which is unused, and copy from
 * there. */
static void
fold_round(const rounds *all, uint64_t round)
{
    const dl_leaders *base = &all->base;
    int host = base->hosts->layout->host;
    dl_bytes own = piece_of(all, round, host);
    uint8_t *slots = slots_of(all, round);
    uint8_t *target = (uint8_t *)(uintptr_t)own.data;
    uint8_t *spare = slots + (size_t)host * all->piece;
    bool is_late = host > 1;
    dl_fold_sources sources = {
        .first = slots, .stride = all->piece, .own_rank = host, .own = own.data};

    if (own.size == 0) {
        return;
    }
    if (base->scatters) {
        target = base->target + round * all->piece;
    }
    dl_fold_run(&base->fold, &sources, own.size, is_late ? spare : target,
                is_late ? target : NULL);
    dl_leaders_divide(base, target, own.size, base->divisor);
}

static dl_status
run_rounds(const rounds *all)
{
    dl_traffic *traffic = all->base.hosts->traffic;
    uint32_t scattered[AHEAD_MOST] = {0};
    uint32_t last = 0;
    uint64_t next = 0;

    for (uint64_t round = 0; round < all->count; round++) {
        for (; next < all->count && next < round + all->ahead; next++) {
            DL_TRY(queue_scatter(all, next, &scattered[next % all->ahead]));
        }
        DL_TRY(dl_traffic_wait(traffic, scattered[round % all->ahead]));
        fold_round(all, round);
        DL_TRY(queue_gather(all, round, &last));
    }
    return dl_traffic_wait(traffic, last);
}

static bool
folds_everything(const dl_leaders *base)
{
    return base->hosts->layout->host_count == 2
           || (base->root >= 0 && base->size <= WHOLE_LIMIT);
}

/* The parts of a reduction whose caller has not set any.  A piece that is folded in place
 * has been sent. */
static void
cut_array(dl_leaders *base)
{
    dl_hosts *hosts = base->hosts;
    size_t end = 0;

    base->ends = hosts->ends;
    if (!folds_everything(base)) {
        dl_hosts_cut(hosts, base->size);
        return;
    }
    for (int host = 0; host < hosts->layout->host_count; host++) {
        end += dl_leaders_gets_result(base, host) ? base->size : 0;
        hosts->ends[host] = end;
        hosts->blocks[host] = base->data;
    }
    base->parts = hosts->blocks;
    base->scatters = true;
    base->target = base->data;
}

/* Returns the largest piece of a part, of whole elements. */
static size_t
largest_piece(size_t hosts)
{
    size_t fits =
        ROOM / (AHEAD_LEAST * hosts) / DL_HOSTS_SHARE_UNIT * DL_HOSTS_SHARE_UNIT;

    return fits < PIECE_LEAST ? PIECE_LEAST : dl_least(fits, PIECE_MOST);
}

dl_status
dl_fold_rounds(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    size_t count = (size_t)hosts->layout->host_count;
    rounds all = {.base = *self, .count = 1};
    size_t largest = 0;

    if (self->ends == NULL) {
        cut_array(&all.base);
    }
    for (int host = 0; host < hosts->layout->host_count; host++) {
        size_t size = dl_leaders_part(&all.base, host).size;
        largest = size > largest ? size : largest;
    }
    if (largest > 0) {
        all.piece =
            dl_least(dl_round_up(largest, DL_HOSTS_SHARE_UNIT), largest_piece(count));
        all.count = (largest + all.piece - 1) / all.piece;
    }
    all.ahead =
        dl_least(all.count, dl_least(AHEAD_MOST, ROOM / (count * all.piece + 1)));
    all.ahead = all.ahead < AHEAD_LEAST ? AHEAD_LEAST : all.ahead;
    DL_TRY(dl_hosts_room(&hosts->incoming, all.ahead * count * all.piece, &all.slots));
    return run_rounds(&all);
}
