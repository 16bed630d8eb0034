/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

/* Exchanges among the leaders in log2(hosts) rounds, with one message each way in a
 * round, for any number of hosts.  Each leader has a row of blocks in which block i is
 * that of the i-th host behind its own, in a ring, so that the blocks of a message are
 * side by side on both ends.  The ring is of all hosts, or of those that are at the
 * head of a group (groups.c), each of which has a block for its group.
 *
 * Whoever has received a block of an operation knows that its host has come to it, and
 * that all leaders that have passed it on called the same. */

int
dl_hosts_ring_count(const dl_hosts *hosts)
{
    return (hosts->layout->host_count + hosts->step - 1) / hosts->step;
}

/* Returns the host `distance` places behind `host` in the ring; before it, if
 * negative. */
int
dl_hosts_ring_behind(const dl_hosts *hosts, int host, int distance)
{
    int count = dl_hosts_ring_count(hosts);

    return (host / hosts->step + distance + count) % count * hosts->step;
}

int
dl_hosts_ring_host(const dl_hosts *hosts, int distance)
{
    return dl_hosts_ring_behind(hosts, hosts->layout->host, distance);
}

int
dl_hosts_ring_leader(const dl_hosts *hosts, int distance)
{
    return dl_layout_leader(hosts->layout, dl_hosts_ring_host(hosts, distance));
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

void
dl_hosts_note_come(dl_hosts *hosts, int first, int end)
{
    int count = hosts->layout->host_count;

    for (int i = first; i < end; i++) {
        int host = dl_hosts_ring_host(hosts, i);
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
        DL_TRY(dl_traffic_expect(hosts->traffic, dl_hosts_ring_leader(hosts, distance),
                                 row + starts[distance], starts[end] - starts[distance],
                                 round++));
    }
    return DL_OK;
}

static dl_status
send_blocks(dl_hosts *hosts, int distance, const uint8_t *row, const size_t *starts)
{
    return dl_traffic_send(hosts->traffic, dl_hosts_ring_leader(hosts, -distance), row,
                           starts[blocks_moved(hosts, distance)]);
}

static dl_status
finish_round(dl_hosts *hosts, int distance, uint32_t stage)
{
    int end = distance + blocks_moved(hosts, distance);

    DL_TRY(dl_traffic_wait(hosts->traffic, stage));
    dl_hosts_note_come(hosts, distance, end);
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

dl_status
dl_hosts_collect_equal(const dl_leaders *self, uint8_t *row, size_t stride)
{
    size_t *starts = self->hosts->starts;

    for (int i = 0; i <= dl_hosts_ring_count(self->hosts); i++) {
        starts[i] = (size_t)i * stride;
    }
    dl_hosts_copy(row, self->data, self->size);
    return dl_hosts_collect(self->hosts, row, starts);
}

void
dl_hosts_ring_starts(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    size_t *starts = hosts->starts;

    starts[0] = 0;
    for (int i = 0; i < hosts->layout->host_count; i++) {
        starts[i + 1] =
            starts[i] + dl_leaders_part(self, dl_hosts_ring_host(hosts, i)).size;
    }
}

/* The all_gather of small blocks, through a row. */
dl_status
dl_gather_ring(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    const size_t *starts = hosts->starts;
    uint8_t *row;

    dl_hosts_ring_starts(self);
    DL_TRY(dl_hosts_room(&hosts->halves, starts[hosts->layout->host_count], &row));
    dl_hosts_copy(row, self->data, starts[1]);
    DL_TRY(dl_hosts_collect(hosts, row, starts));
    for (int i = 1; i < hosts->layout->host_count; i++) {
        dl_hosts_copy(self->parts[dl_hosts_ring_host(hosts, i)], row + starts[i],
                      starts[i + 1] - starts[i]);
    }
    return DL_OK;
}
