/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/hosts.h"

#include <stdlib.h>

#include "pg/cpu/algorithms/algorithms.h"

dl_status
dl_hosts_init(dl_hosts *hosts)
{
    const dl_layout *layout = hosts->layout;
    size_t count = (size_t)dl_hosts_local_count(hosts);
    int other = 0;

    hosts->leaders = calloc((size_t)layout->host_count, sizeof *hosts->leaders);
    hosts->locals[0] = calloc(2 * count, sizeof **hosts->locals);
    hosts->is_end_known = calloc(count, sizeof *hosts->is_end_known);
    if (hosts->leaders == NULL || hosts->locals[0] == NULL
        || hosts->is_end_known == NULL) {
        dl_hosts_fini(hosts);
        return dl_fail_no_memory();
    }
    hosts->locals[1] = hosts->locals[0] + count;
    for (int host = 0; host < layout->host_count; host++) {
        if (host != layout->host) {
            hosts->leaders[other++] = dl_layout_leader(layout, host);
        }
    }
    return DL_OK;
}

void
dl_hosts_fini(dl_hosts *hosts)
{
    free(hosts->leaders);
    free(hosts->locals[0]);
    free(hosts->is_end_known);
    dl_buffer_fini(&hosts->work);
    dl_buffer_fini(&hosts->incoming);
    dl_buffer_fini(&hosts->flat);
    *hosts = (dl_hosts){0};
}

const dl_op_context *
dl_hosts_first(dl_hosts *hosts, const dl_op_context *op)
{
    hosts->meeting = *op;
    hosts->meeting.sequence = (op->sequence - 1) * DL_HOSTS_MEETINGS + 1;
    return &hosts->meeting;
}

const dl_op_context *
dl_hosts_meeting_of(dl_hosts *hosts, const dl_op_context *op)
{
    uint64_t meeting = hosts->meeting.sequence;
    bool has_begun =
        (meeting + DL_HOSTS_MEETINGS - 1) / DL_HOSTS_MEETINGS == op->sequence;

    return has_begun ? &hosts->meeting : dl_hosts_first(hosts, op);
}

/* The board borrows the context, so the increment tells it that this rank is past the
 * first meeting: from now on its checks report failures of the last one. */
const dl_op_context *
dl_hosts_last(dl_hosts *hosts)
{
    dl_op_context *meeting = &hosts->meeting;

    if (meeting->sequence % DL_HOSTS_MEETINGS != 0) {
        meeting->sequence++;
    }
    return meeting;
}

dl_status
dl_hosts_meet(dl_hosts *hosts, const dl_op_context *meeting)
{
    return hosts->board == NULL ? DL_OK : dl_barrier_line(hosts->board, meeting);
}

/* Where data goes only one way, the greetings carry the fingerprints the other way. */
dl_status
dl_hosts_greet(dl_hosts *hosts)
{
    int count = dl_layout_leads(hosts->layout) ? hosts->layout->host_count - 1 : 0;

    for (int i = 0; i < count; i++) {
        DL_TRY(dl_traffic_send(hosts->traffic, hosts->leaders[i], NULL, 0));
        DL_TRY(dl_traffic_receive(hosts->traffic, hosts->leaders[i], NULL, 0));
    }
    return DL_OK;
}

dl_status
dl_hosts_room(dl_buffer *buffer, size_t size, uint8_t **room)
{
    dl_buffer_clear(buffer);
    DL_TRY(dl_buffer_reserve(buffer, size));
    *room = buffer->data;
    return DL_OK;
}

/* A leader greets after its own host has met, so the greetings of all hosts prove that
 * all ranks have come. */
dl_status
dl_hosts_barrier(dl_hosts *hosts, const dl_op_context *op)
{
    DL_TRY(dl_hosts_meet(hosts, dl_hosts_first(hosts, op)));
    dl_hosts_last(hosts);
    DL_TRY(dl_hosts_greet(hosts));
    DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
    return dl_hosts_meet(hosts, dl_hosts_last(hosts));
}
