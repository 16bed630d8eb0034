/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

/* A binomial tree: the host that is at a place in the order from the root on is below the
 * one whose place has the lowest bit cleared.  Returns that bit; at the root, the first one
 * that no place has. */
static int
lowest_bit(int place, int count)
{
    int bit = 1;

    while (bit < count && (place & bit) == 0) {
        bit *= 2;
    }
    return bit;
}

static int
own_position(const dl_leaders *self)
{
    const dl_layout *layout = self->hosts->layout;

    return (layout->host - self->root + layout->host_count) % layout->host_count;
}

/* The whole array goes down the tree. */
dl_status
dl_send_tree(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    int count = hosts->layout->host_count;
    int place = own_position(self);
    int bit = lowest_bit(place, count);

    DL_TRY(dl_hosts_greet(hosts));
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

/* Each host adds what those below it have, and sends that up: to the root nothing comes
 * that is not part of the result. */
dl_status
dl_fold_tree(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    int count = hosts->layout->host_count;
    int place = own_position(self);
    int end = lowest_bit(place, count);
    size_t items = self->size / self->fold.item_size;
    size_t slots = 0;
    uint8_t *slot;

    DL_TRY(dl_hosts_greet(hosts));
    hosts->is_below = hosts->traffic->is_one_way && end > 2;
    for (int bit = 1; bit < end && place + bit < count; bit *= 2) {
        slots++;
    }
    DL_TRY(dl_hosts_room(&hosts->incoming, slots * self->size, &slot));
    for (size_t i = 0; i < slots; i++) {
        DL_TRY(dl_traffic_receive(hosts->traffic, dl_leaders_at(self, place + (1 << i)),
                                  slot + i * self->size, self->size));
    }
    DL_TRY(dl_traffic_wait(hosts->traffic, hosts->traffic->stage));
    for (size_t i = 0; i < slots; i++) {
        self->fold.kernel(self->data, self->data, slot + i * self->size, items);
    }
    if (place > 0) {
        DL_TRY(dl_traffic_send(hosts->traffic, dl_leaders_at(self, place - end),
                               self->data, self->size));
    } else {
        dl_leaders_divide(self, self->data, self->size, dl_leaders_divisor(self));
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}
