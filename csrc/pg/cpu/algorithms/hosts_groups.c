/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/hosts.h"

/* Small exchanges of many hosts.  Each hosts->group consecutive hosts are a group, whose
 * first host is its head:
 *
 *     up        the others send to the head
 *     between   the heads collect what all groups have (hosts_doubling.c)
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

bool
dl_hosts_is_head(const dl_hosts *hosts)
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

static size_t
size_down(const dl_hosts_share *share, int host)
{
    return share->to < 0 || share->to == host ? share->size : 0;
}

/* Returns whether the result goes to `host`, if only to compare the calls. */
static bool
goes_down(const dl_hosts *hosts, const dl_hosts_share *share, int host)
{
    return !hosts->traffic->is_one_way || share->to == host;
}

void
dl_hosts_skip_rounds(dl_hosts *hosts)
{
    for (int distance = 1; distance < dl_hosts_ring_count(hosts); distance *= 2) {
        dl_traffic_next(hosts->traffic);
    }
}

/* Goes on to the stage in which the results go down. */
static void
skip_to_last(dl_hosts *hosts)
{
    dl_traffic_next(hosts->traffic);
    dl_hosts_skip_rounds(hosts);
}

dl_status
dl_hosts_up(dl_hosts *hosts, const dl_hosts_share *share, uint8_t *slots, size_t stride)
{
    const dl_layout *layout = hosts->layout;
    int head = dl_layout_leader(layout, head_of(hosts));

    hosts->step = hosts->group;
    hosts->first_source = 1;
    if (!dl_hosts_is_head(hosts)) {
        DL_TRY(dl_traffic_send(hosts->traffic, head, share->data, share->size));
        skip_to_last(hosts);
        return goes_down(hosts, share, layout->host)
                   ? dl_traffic_receive(hosts->traffic, head, share->data,
                                        size_down(share, layout->host))
                   : DL_OK;
    }
    for (int host = layout->host + 1; host < group_end(hosts); host++) {
        DL_TRY(dl_traffic_receive(hosts->traffic, dl_layout_leader(layout, host), slots,
                                  share->size));
        slots += stride;
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}

dl_status
dl_hosts_down(dl_hosts *hosts, const dl_hosts_share *share)
{
    const dl_layout *layout = hosts->layout;

    for (int host = layout->host + 1; host < group_end(hosts); host++) {
        if (goes_down(hosts, share, host)) {
            DL_TRY(dl_traffic_send(hosts->traffic, dl_layout_leader(layout, host),
                                   share->data, size_down(share, host)));
        }
    }
    return DL_OK;
}

/* Ranks that do not lead count the stages as the leaders do, because both ends of a
 * message behind the greetings have to be in the same one. */
dl_status
dl_hosts_greet(dl_hosts *hosts)
{
    static uint8_t nothing[1];
    const dl_hosts_share share = {nothing, 0, -1};

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
    DL_TRY(dl_hosts_up(hosts, &share, nothing, 0));
    if (!dl_hosts_is_head(hosts)) {
        return DL_OK;
    }
    DL_TRY(dl_hosts_collect(hosts, nothing, hosts->no_blocks));
    return dl_hosts_down(hosts, &share);
}
