/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/hosts.h"

#include "pg/cpu/algorithms/limits.h"

/* Exchanges among the leaders in log2(hosts) rounds, with one message each way in a
 * round, for any number of hosts.  Each leader has a row of blocks in which block i is
 * that of the i-th host behind its own, in a ring, so that the blocks of a message are
 * side by side on both ends.  The ring is of all hosts, or of those that are at the
 * head of a group (hosts_groups.c), each of which has a block for its group.
 *
 * Whoever has received a block of an operation knows that its host has come to it, and
 * that all leaders that have passed it on called the same. */

bool
dl_hosts_passes_on(const dl_hosts *hosts, size_t size)
{
    size_t count = (size_t)hosts->layout->host_count;

    return count > DL_HOSTS_DIRECT_LIMIT && size <= count * DL_HOSTS_PASS_ON_LIMIT;
}

int
dl_hosts_ring_count(const dl_hosts *hosts)
{
    return (hosts->layout->host_count + hosts->step - 1) / hosts->step;
}

/* Returns the host `distance` places behind `host` in the ring; before it, if
 * negative. */
static int
host_behind(const dl_hosts *hosts, int host, int distance)
{
    int count = dl_hosts_ring_count(hosts);

    return (host / hosts->step + distance + count) % count * hosts->step;
}

int
dl_hosts_block_host(const dl_hosts *hosts, int index)
{
    return host_behind(hosts, hosts->layout->host, index);
}

static int
leader_at(const dl_hosts *hosts, int distance)
{
    return dl_layout_leader(hosts->layout, dl_hosts_block_host(hosts, distance));
}

/* All-gather: with d blocks, of hosts 0 to d - 1 behind it, each leader sends them to the
 * one that is d hosts before it.  Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient
 * algorithms for all-to-all communications in multiport message-passing systems" (IEEE
 * TPDS 8, 1997). */

static int
blocks_moved(const dl_hosts *hosts, int distance)
{
    int left = dl_hosts_ring_count(hosts) - distance;

    return left < distance ? left : distance;
}

static void
note_come(dl_hosts *hosts, int first, int end)
{
    int count = hosts->layout->host_count;

    for (int i = first; i < end; i++) {
        int host = dl_hosts_block_host(hosts, i);
        int behind = host + hosts->step;
        for (; host < behind && host < count; host++) {
            hosts->come[host] = dl_hosts_operation(hosts);
        }
    }
}

static dl_status
expect_blocks(dl_hosts *hosts, uint8_t *row, const size_t *starts)
{
    int count = dl_hosts_ring_count(hosts);
    uint32_t round = 0;

    for (int distance = 1; distance < count; distance *= 2) {
        int end = distance + blocks_moved(hosts, distance);
        DL_TRY(dl_traffic_expect(hosts->traffic, leader_at(hosts, distance),
                                 row + starts[distance], starts[end] - starts[distance],
                                 round++));
    }
    return DL_OK;
}

static dl_status
send_blocks(dl_hosts *hosts, int distance, const uint8_t *row, const size_t *starts)
{
    return dl_traffic_send(hosts->traffic, leader_at(hosts, -distance), row,
                           starts[blocks_moved(hosts, distance)]);
}

static dl_status
finish_round(dl_hosts *hosts, int distance, uint32_t stage)
{
    int end = distance + blocks_moved(hosts, distance);

    DL_TRY(dl_traffic_wait(hosts->traffic, stage));
    note_come(hosts, distance, end);
    return DL_OK;
}

dl_status
dl_hosts_begin_collecting(dl_hosts *hosts, uint8_t *row, const size_t *starts)
{
    int count = dl_hosts_ring_count(hosts);
    int distance = 1;

    hosts->first_source = distance;
    DL_TRY(expect_blocks(hosts, row, starts));
    for (; 2 * distance < count; distance *= 2) {
        DL_TRY(send_blocks(hosts, distance, row, starts));
        DL_TRY(finish_round(hosts, distance, dl_traffic_next(hosts->traffic)));
    }
    return send_blocks(hosts, distance, row, starts);
}

dl_status
dl_hosts_collect(dl_hosts *hosts, uint8_t *row, const size_t *starts)
{
    DL_TRY(dl_hosts_begin_collecting(hosts, row, starts));
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}

/* Reduce-scatter, the way back: of s blocks, each leader sends the upper half to the
 * leaders that are nearer to their hosts, and adds what it receives to the lower half.
 * Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms" (2024).  The
 * order of a sum depends on the number of hosts only. */

/* Returns the blocks that are kept in a round, of `held` ones. */
static int
half_of(int held)
{
    return (held + 1) / 2;
}

/* Expects what is added in each round. */
static dl_status
expect_halves(dl_hosts *hosts, const size_t *starts, uint8_t **incoming)
{
    const dl_layout *layout = hosts->layout;
    size_t total = 0;
    uint32_t round = 0;

    for (int held = layout->host_count; held > 1; held = half_of(held)) {
        total += starts[held - half_of(held)];
    }
    DL_TRY(dl_hosts_room(&hosts->halves, total, incoming));
    uint8_t *at = *incoming;
    for (int held = layout->host_count; held > 1; held = half_of(held)) {
        int from = leader_at(hosts, -half_of(held));
        size_t size = starts[held - half_of(held)];
        DL_TRY(dl_traffic_expect(hosts->traffic, from, at, size, round++));
        at += size;
    }
    return DL_OK;
}

dl_status
dl_hosts_combine(dl_hosts *hosts, const dl_fold *fold, uint8_t *row,
                 const size_t *starts)
{
    const dl_layout *layout = hosts->layout;
    uint8_t *incoming;

    hosts->first_source = -half_of(layout->host_count);
    DL_TRY(expect_halves(hosts, starts, &incoming));
    for (int held = layout->host_count; held > 1; held = half_of(held)) {
        int kept = half_of(held);
        size_t size = starts[held - kept];
        DL_TRY(dl_traffic_send(hosts->traffic, leader_at(hosts, kept),
                               row + starts[kept], starts[held] - starts[kept]));
        DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
        fold->kernel(row, row, incoming, size / fold->item_size);
        incoming += size;
    }
    note_come(hosts, 1, layout->host_count);
    return DL_OK;
}

void
dl_hosts_rotate_in(dl_hosts *hosts, uint8_t *row, const uint8_t *data,
                   const size_t *ends)
{
    const dl_layout *layout = hosts->layout;
    size_t *starts = hosts->starts;

    starts[0] = 0;
    for (int i = 0; i < layout->host_count; i++) {
        int host = dl_hosts_block_host(hosts, i);
        size_t start = host == 0 ? 0 : ends[host - 1];
        dl_hosts_copy(row + starts[i], data + start, ends[host] - start);
        starts[i + 1] = starts[i] + ends[host] - start;
    }
}

void
dl_hosts_rotate_out(const dl_hosts *hosts, uint8_t *data, const uint8_t *row)
{
    const dl_layout *layout = hosts->layout;
    int first = (layout->host_count - layout->host) % layout->host_count;
    size_t size = hosts->starts[layout->host_count];
    size_t before = first == 0 ? 0 : size - hosts->starts[first];

    dl_hosts_copy(data, row + hosts->starts[first], first == 0 ? size : before);
    dl_hosts_copy(data + before, row, first == 0 ? 0 : hosts->starts[first]);
}

bool
dl_hosts_has_come(const dl_hosts *hosts, int host)
{
    int leader = dl_layout_leader(hosts->layout, host);
    uint64_t operation = dl_hosts_operation(hosts);

    return hosts->come[host] >= operation
           || dl_traffic_last_seen(hosts->traffic, leader) >= operation;
}

/* Returns whether a host of the group of `host`, which is its head, has not come. */
static bool
is_group_late(const dl_hosts *hosts, int host)
{
    int end = host + hosts->step;

    for (int member = host + 1; member < end && member < hosts->layout->host_count;
         member++) {
        if (!dl_hosts_has_come(hosts, member)) {
            return true;
        }
    }
    return false;
}

static bool
is_head(const dl_hosts *hosts, int host)
{
    return hosts->first_source != 0 && host % hosts->step == 0;
}

bool
dl_hosts_sees_late(const dl_hosts *hosts, int host)
{
    return is_head(hosts, host)
           && (!dl_hosts_has_come(hosts, host_behind(hosts, host, hosts->first_source))
               || is_group_late(hosts, host));
}

bool
dl_hosts_is_first_to_see(const dl_hosts *hosts)
{
    int host = hosts->layout->host;

    return hosts->step == 1 ? dl_hosts_sees_late(hosts, host)
                            : is_head(hosts, host) && is_group_late(hosts, host);
}

bool
dl_hosts_others_know(void *context)
{
    const dl_hosts *hosts = context;

    return hosts->is_below
           || (hosts->first_source != 0 && !dl_hosts_is_first_to_see(hosts));
}
