/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

/* Reduce-scatter, the way back through the ring: of s blocks, each leader sends the upper
 * half to the leaders that are nearer to their hosts, and adds what it receives to the
 * lower half.  Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms"
 * (2024).  The order of a sum depends on the number of hosts only. */

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
    int count = hosts->layout->host_count;
    size_t total = 0;
    uint32_t round = 0;

    for (int held = count; held > 1; held = half_of(held)) {
        total += starts[held - half_of(held)];
    }
    DL_TRY(dl_hosts_room(&hosts->halves, total, incoming));
    uint8_t *at = *incoming;
    for (int held = count; held > 1; held = half_of(held)) {
        int from = dl_hosts_ring_leader(hosts, -half_of(held));
        size_t size = starts[held - half_of(held)];
        DL_TRY(dl_traffic_expect(hosts->traffic, from, at, size, round++));
        at += size;
    }
    return DL_OK;
}

/* Reduces the parts of all hosts into this host's, the first of a row in scratch memory;
 * its blocks begin at `hosts->starts`. */
static dl_status
combine_halves(const dl_leaders *self, uint8_t **row)
{
    dl_hosts *hosts = self->hosts;
    const size_t *starts = hosts->starts;
    int count = hosts->layout->host_count;
    uint8_t *incoming;

    dl_hosts_ring_starts(self);
    DL_TRY(dl_hosts_room(&hosts->incoming, starts[count], row));
    hosts->first_source = -half_of(count);
    DL_TRY(expect_halves(hosts, starts, &incoming));
    for (int i = 0; i < count; i++) {
        dl_bytes part = dl_leaders_part(self, dl_hosts_ring_host(hosts, i));
        dl_hosts_copy(*row + starts[i], part.data, part.size);
    }
    for (int held = count; held > 1; held = half_of(held)) {
        int kept = half_of(held);
        size_t size = starts[held - kept];
        DL_TRY(dl_traffic_send(hosts->traffic, dl_hosts_ring_leader(hosts, kept),
                               *row + starts[kept], starts[held] - starts[kept]));
        DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
        self->fold.kernel(*row, *row, incoming, size / self->fold.item_size);
        incoming += size;
    }
    dl_hosts_note_come(hosts, 1, count);
    dl_leaders_divide(self, *row, starts[1], dl_leaders_divisor(self));
    return DL_OK;
}

dl_status
dl_fold_parts(const dl_leaders *self)
{
    uint8_t *row;

    DL_TRY(combine_halves(self, &row));
    dl_hosts_copy(self->target, row, self->hosts->starts[1]);
    return DL_OK;
}

/* Each leader folds a share, and all collect these. */
dl_status
dl_fold_shares(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    dl_leaders cut = *self;
    uint8_t *row;

    dl_hosts_cut(hosts, self->size);
    cut.ends = hosts->ends;
    DL_TRY(combine_halves(&cut, &row));
    DL_TRY(dl_hosts_collect(hosts, row, hosts->starts));
    for (int i = 0; i < hosts->layout->host_count
                    && dl_leaders_gets_result(self, hosts->layout->host);
         i++) {
        dl_bytes part = dl_leaders_part(&cut, dl_hosts_ring_host(hosts, i));
        dl_hosts_copy((uint8_t *)(uintptr_t)part.data, row + hosts->starts[i],
                      part.size);
    }
    return DL_OK;
}
