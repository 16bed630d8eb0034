/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

/* Two stages spare the root's link the load of all hosts but one: the root's host sends
 * each other host its share, which that sends to all others but the root's host, which has
 * everything.  Empty messages compare the calls. */
static dl_status
queue_stage(const dl_leaders *self, bool is_first)
{
    const dl_layout *layout = self->hosts->layout;
    dl_traffic *traffic = self->hosts->traffic;
    bool is_home = layout->host == self->root;

    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        dl_bytes out = dl_leaders_part(self, is_first ? host : layout->host);
        dl_bytes in = dl_leaders_part(self, is_first ? layout->host : host);
        bool sends = is_first ? is_home : host != self->root;
        bool gets = is_first ? host == self->root : !is_home;
        if (host != layout->host) {
            DL_TRY(dl_traffic_send(traffic, leader, out.data, sends ? out.size : 0));
            DL_TRY(dl_traffic_receive(traffic, leader, (uint8_t *)(uintptr_t)in.data,
                                      gets ? in.size : 0));
        }
    }
    return dl_traffic_wait(traffic, dl_traffic_next(traffic));
}

dl_status
dl_send_shares(const dl_leaders *self)
{
    dl_leaders cut = *self;

    dl_hosts_cut(self->hosts, self->size);
    cut.ends = self->hosts->ends;
    DL_TRY(queue_stage(&cut, true));
    return queue_stage(&cut, false);
}
