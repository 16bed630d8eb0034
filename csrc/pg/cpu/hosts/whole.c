/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

bool
dl_hosts_collects(const dl_leaders *self)
{
    const dl_hosts *hosts = self->hosts;

    return self->root < 0 || !hosts->traffic->is_one_way
           || self->root / hosts->step == hosts->layout->host / hosts->step;
}

static dl_status
send_to_root(const dl_leaders *self, uint8_t *row)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    int root = dl_layout_leader(layout, self->root - self->root % hosts->step);

    if (!dl_hosts_collects(self)) {
        DL_TRY(dl_traffic_send(hosts->traffic, root, self->data, self->size));
    }
    for (int i = 1; dl_hosts_collects(self) && i < dl_hosts_ring_count(hosts); i++) {
        DL_TRY(dl_traffic_receive(hosts->traffic, dl_hosts_ring_leader(hosts, i),
                                  row + hosts->starts[i], self->size));
    }
    DL_TRY(dl_traffic_wait(hosts->traffic, hosts->traffic->stage));
    dl_hosts_skip_rounds(hosts);
    return DL_OK;
}

dl_status
dl_hosts_collect_to_root(const dl_leaders *self, uint8_t *row, size_t stride)
{
    dl_hosts *hosts = self->hosts;

    for (int i = 0; i <= dl_hosts_ring_count(hosts); i++) {
        hosts->starts[i] = (size_t)i * stride;
    }
    if (dl_hosts_collects(self)) {
        dl_hosts_copy(row, self->data, self->size);
    }
    return self->root < 0 || !hosts->traffic->is_one_way
               ? dl_hosts_collect(hosts, row, hosts->starts)
               : send_to_root(self, row);
}

/* Collects the whole partial results of all leaders, and folds them in the order of the
 * hosts. */
dl_status
dl_fold_whole(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    int count = hosts->layout->host_count;
    size_t stride = dl_round_up(self->size, DL_HOSTS_SHARE_UNIT);
    dl_fold_sources sources = {.by_rank = hosts->blocks, .own_rank = -1};
    uint8_t *row;

    DL_TRY(dl_hosts_room(&hosts->incoming, (size_t)count * stride, &row));
    for (int i = 0; i < count; i++) {
        hosts->blocks[dl_hosts_ring_host(hosts, i)] = row + (size_t)i * stride;
    }
    DL_TRY(dl_hosts_collect_to_root(self, row, stride));
    if (dl_leaders_gets_result(self, hosts->layout->host)) {
        dl_fold_run(&self->fold, &sources, self->size, self->data, NULL);
        dl_leaders_divide(self, self->data, self->size, self->divisor);
    }
    return DL_OK;
}
