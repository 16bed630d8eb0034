/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

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
    DL_TRY(dl_hosts_collect_equal(self, row, stride));
    dl_fold_run(&self->fold, &sources, self->size, self->data, NULL);
    dl_leaders_divide(self, self->data, self->size, self->divisor);
    return DL_OK;
}
