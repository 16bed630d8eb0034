/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/hosts/leaders.h"

/* Ranks up to whose number the arrays of a scan are sent to each that needs them. */
#define FEW 4

/* Sends this rank's array to all behind it, and receives those of all before it. */
static dl_status
gather_earlier(dl_hosts *hosts, const dl_tensor *tensor, const dl_tensor *rows)
{
    dl_traffic *traffic = hosts->traffic;
    int own = hosts->layout->rank;
    size_t size = dl_tensor_size(tensor);

    dl_hosts_last(hosts);
    for (int rank = 0; rank < hosts->layout->size; rank++) {
        if (rank < own) {
            DL_TRY(dl_traffic_receive(traffic, rank, rows[rank].data, size));
        } else if (rank > own) {
            DL_TRY(dl_traffic_send(traffic, rank, tensor->data, size));
        }
    }
    dl_hosts_copy(rows[own].data, tensor->data, size);
    return dl_traffic_wait(traffic, dl_traffic_next(traffic));
}

/* An all_gather, after which each rank reduces the arrays up to its own. */
static dl_status
scan_rows(const dl_leaders *self, dl_tensor *rows)
{
    dl_hosts *hosts = self->hosts;
    const dl_op_context *op = self->op;
    const dl_call *call = self->call;
    const dl_layout *layout = hosts->layout;
    int count = layout->rank + (call->op == DL_EXSCAN ? 0 : 1);
    size_t size = dl_tensor_size(&call->tensor);
    size_t stride = dl_round_up(size, DL_LINE);
    dl_fold fold = dl_fold_of(call, count);
    dl_call gather = dl_call_all_gather(&call->tensor, rows);
    uint8_t *room;

    DL_TRY(dl_hosts_room(&hosts->work, stride * (size_t)layout->size, &room));
    for (int rank = 0; rank < layout->size; rank++) {
        rows[rank] = call->tensor;
        rows[rank].data = room + (size_t)rank * stride;
        rows[rank].is_writable = true;
    }
    if (layout->host_count == layout->size && layout->size <= FEW) {
        dl_hosts_first_one_way(hosts, op, call->op);
    } else {
        dl_hosts_first(hosts, op);
    }
    DL_TRY(hosts->traffic->is_one_way ? gather_earlier(hosts, &call->tensor, rows)
                                      : dl_hosts_all_gather(hosts, op, &gather));
    dl_fold_sources sources = {.first = room, .stride = stride, .own_rank = -1};
    if (count >= 2) {
        dl_fold_run(&fold, &sources, size, call->tensor.data, NULL);
    } else if (count == 1) {
        dl_copy(call->tensor.data, room, size);
    }
    return DL_OK;
}

dl_status
dl_scan_gathered(const dl_leaders *self)
{
    dl_tensor *rows = calloc((size_t)self->hosts->layout->size, sizeof *rows);

    if (rows == NULL) {
        return dl_fail_no_memory();
    }
    dl_status status = scan_rows(self, rows);
    free(rows);
    return status;
}

dl_status
dl_hosts_scan(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    const dl_leaders between = {.hosts = hosts, .op = op, .call = call};
    size_t arrays = dl_tensor_size(&call->tensor) * (size_t)hosts->layout->size;

    return dl_hosts_select(DL_SCAN, hosts->layout->host_count, arrays)(&between);
}
