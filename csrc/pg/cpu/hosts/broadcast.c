/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/hosts/leaders.h"
#include "tensor/strided.h"

/* Runs on leaders.  Strided tensors are sent and received through a contiguous copy. */
static dl_status
broadcast_between(dl_hosts *hosts, const dl_tensor *tensor, int home)
{
    dl_leaders between = {.hosts = hosts,
                          .root = home,
                          .data = tensor->data,
                          .size = dl_tensor_size(tensor)};
    bool is_home = hosts->layout->host == home;

    if (!tensor->is_contiguous) {
        DL_TRY(dl_hosts_room(&hosts->flat, between.size, &between.data));
        if (is_home) {
            dl_strided_gather_part(between.data, tensor, 0, between.size);
        }
    }
    DL_TRY(dl_hosts_select(DL_BROADCAST, hosts->layout->host_count,
                           between.size)(&between));
    if (!tensor->is_contiguous && !is_home) {
        dl_strided_scatter_part(tensor, between.data, 0, between.size);
    }
    return DL_OK;
}

/* On the root's host the first phase distributes the data to all ranks, the leader
 * among them; on other hosts the last phase does.  The other phase of each host
 * only compares the calls. */
dl_status
dl_hosts_broadcast(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    const dl_layout *layout = hosts->layout;
    int home = layout->host_of[call->root];
    bool is_home = layout->host == home;
    const dl_op_context *first = dl_hosts_first_one_way(hosts, op, DL_BROADCAST);

    DL_TRY(is_home ? dl_hosts_broadcast_within(hosts, first, &call->tensor,
                                               layout->local_rank_of[call->root])
                   : dl_hosts_arrive(hosts, first));
    const dl_op_context *last = dl_hosts_last(hosts);
    if (dl_layout_leads(layout)) {
        DL_TRY(broadcast_between(hosts, &call->tensor, home));
    }
    return is_home ? dl_hosts_arrive(hosts, last)
                   : dl_hosts_broadcast_within(hosts, last, &call->tensor, 0);
}
