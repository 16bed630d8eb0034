/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

/* The whole array goes down a binomial tree: a host that is at a place in the order from
 * the root on gets it from the one whose place has the lowest bit cleared. */
dl_status
dl_send_tree(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    int count = layout->host_count;
    int place = (layout->host - self->root + count) % count;
    int bit = 1;

    DL_TRY(dl_hosts_greet(hosts));
    while (bit < count && (place & bit) == 0) {
        bit *= 2;
    }
    if (place > 0) {
        hosts->is_below = hosts->traffic->is_one_way && place != bit;
        DL_TRY(dl_traffic_receive(hosts->traffic, dl_leaders_at(self, place - bit),
                                  self->data, self->size));
        DL_TRY(dl_traffic_wait(hosts->traffic, hosts->traffic->stage));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (place + bit < count) {
            DL_TRY(dl_traffic_send(hosts->traffic, dl_leaders_at(self, place + bit),
                                   self->data, self->size));
        }
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}
