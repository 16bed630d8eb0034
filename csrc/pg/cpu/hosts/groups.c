/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"

/* Small exchanges of many hosts.  Each hosts->group consecutive hosts are a group, whose
 * first host is its head:
 *
 *     up        the others send to the head
 *     between   the heads collect what all groups have (ring.c)
 *     down      and send the result to the others
 *
 * That takes no more steps one behind another than rounds among all leaders, and a third
 * of the messages or less: where many wait for each other, each message wakes one. */

static int
head_of(const dl_hosts *hosts)
{
    int host = hosts->layout->host;

    return host - host % hosts->group;
}

static bool
is_head(const dl_hosts *hosts)
{
    return head_of(hosts) == hosts->layout->host;
}

static int
group_end(const dl_hosts *hosts)
{
    int end = head_of(hosts) + hosts->group;
    int count = hosts->layout->host_count;

    return end < count ? end : count;
}

/* Goes on to the stage in which the results go down. */
static void
skip_to_last(dl_hosts *hosts)
{
    dl_traffic_next(hosts->traffic);
    for (int distance = 1; distance < dl_hosts_ring_count(hosts); distance *= 2) {
        dl_traffic_next(hosts->traffic);
    }
}

/* A head receives the data of the others in its group, `stride` bytes apart in `slots`;
 * any other leader sends its own, and expects the result in its place: it has to wait for
 * it, and is done. */
static dl_status
collect_in_group(const dl_leaders *self, uint8_t *slots, size_t stride)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    int head = dl_layout_leader(layout, head_of(hosts));

    hosts->step = hosts->group;
    hosts->first_source = 1;
    if (!is_head(hosts)) {
        DL_TRY(dl_traffic_send(hosts->traffic, head, self->data, self->size));
        skip_to_last(hosts);
        return dl_traffic_receive(hosts->traffic, head, self->data, self->size);
    }
    for (int host = layout->host + 1; host < group_end(hosts); host++) {
        DL_TRY(dl_traffic_receive(hosts->traffic, dl_layout_leader(layout, host), slots,
                                  self->size));
        slots += stride;
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}

/* Queues the result that a head has. */
static dl_status
send_to_group(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;

    for (int host = layout->host + 1; host < group_end(hosts); host++) {
        DL_TRY(dl_traffic_send(hosts->traffic, dl_layout_leader(layout, host),
                               self->data, self->size));
    }
    return DL_OK;
}

/* Ranks that do not lead count the stages as the leaders do, because both ends of a
 * message behind the greetings have to be in the same one. */
dl_status
dl_hosts_greet(dl_hosts *hosts)
{
    static uint8_t nothing[1];
    const dl_leaders none = {.hosts = hosts, .root = -1, .data = nothing};

    if (hosts->traffic->is_one_way) {
        return DL_OK;
    }
    if (hosts->group == 1 && dl_layout_leads(hosts->layout)) {
        return dl_hosts_begin_collecting(hosts, nothing, hosts->no_blocks);
    }
    if (hosts->group == 1) {
        for (int distance = 1; 2 * distance < hosts->layout->host_count;
             distance *= 2) {
            dl_traffic_next(hosts->traffic);
        }
        return DL_OK;
    }
    if (!dl_layout_leads(hosts->layout)) {
        hosts->step = hosts->group;
        skip_to_last(hosts);
        return DL_OK;
    }
    DL_TRY(collect_in_group(&none, nothing, 0));
    if (!is_head(hosts)) {
        return DL_OK;
    }
    DL_TRY(dl_hosts_collect(hosts, nothing, hosts->no_blocks));
    return send_to_group(&none);
}

/* Folds the `count` arrays in slots into the data, in their order. */
static void
add_slots(const dl_leaders *self, const uint8_t *slots, size_t stride, int count)
{
    size_t items = self->size / self->fold.item_size;

    for (int i = 0; i < count; i++) {
        self->fold.kernel(self->data, self->data, slots + (size_t)i * stride, items);
    }
}

/* The part of a head: collects what all groups have, and folds that in the order of the
 * groups. */
static dl_status
fold_heads(const dl_leaders *self, uint8_t *row, size_t stride)
{
    dl_hosts *hosts = self->hosts;
    int count = dl_hosts_ring_count(hosts);
    int first = (count - hosts->layout->host / hosts->step) % count;

    DL_TRY(dl_hosts_collect_equal(self, row, stride));
    dl_hosts_copy(self->data, row + (size_t)first * stride, self->size);
    add_slots(self, row + (size_t)(first + 1) * stride, stride, count - first - 1);
    add_slots(self, row, stride, first);
    dl_leaders_divide(self, self->data, self->size, dl_leaders_divisor(self));
    return DL_OK;
}

dl_status
dl_fold_groups(const dl_leaders *self)
{
    dl_hosts *hosts = self->hosts;
    size_t stride = dl_round_up(self->size, DL_HOSTS_SHARE_UNIT);
    int others = group_end(hosts) - hosts->layout->host - 1;
    int groups = (hosts->layout->host_count - 1) / hosts->group + 1;
    uint8_t *row;

    DL_TRY(dl_hosts_room(&hosts->incoming,
                         (size_t)(others > groups ? others : groups) * stride, &row));
    DL_TRY(collect_in_group(self, row, stride));
    if (is_head(hosts)) {
        add_slots(self, row, stride, others);
        DL_TRY(fold_heads(self, row, stride));
        DL_TRY(send_to_group(self));
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}
