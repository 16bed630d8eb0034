/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/hosts/reduction.h"
#include "tensor/strided.h"

/* Chosen by the size in the dtype that is computed in. */
dl_reduction
dl_reduction_of(const dl_hosts *hosts, dl_op_type op, dl_dtype dtype, size_t count)
{
    const dl_layout *layout = hosts->layout;
    size_t size = count * dl_dtype_size(dl_reduce_dtype(dtype));
    dl_leaders_fn *run = dl_hosts_select(op, layout->host_count, size);
    bool is_partial = layout->host_count < layout->size || dl_hosts_folds_partly(run);

    return (dl_reduction){run, is_partial && dl_reduce_dtype(dtype) != dtype};
}

/* The fold would divide by the number of hosts. */
dl_leaders
dl_reduction_leaders(dl_hosts *hosts, const dl_call *call, int root)
{
    const dl_layout *layout = hosts->layout;
    bool is_mean = call->reduction == DL_AVG && layout->host_count < layout->size;
    dl_leaders made = {
        .hosts = hosts,
        .root = root,
        .data = call->tensor.data,
        .size = dl_tensor_size(&call->tensor),
        .fold = dl_fold_of(call, layout->host_count),
        .divisor = is_mean ? layout->size : 1,
    };

    made.fold.op = is_mean ? DL_SUM : made.fold.op;
    return made;
}

dl_call
dl_reduction_call(const dl_tensor *tensor, dl_reduce_op op)
{
    return dl_call_all_reduce(tensor, op == DL_PREMUL_SUM ? DL_SUM : op);
}

dl_status
dl_reduction_within(dl_hosts *hosts, const dl_op_context *phase, const dl_call *call)
{
    dl_call within = {.op = DL_REDUCE,
                      .tensor = call->tensor,
                      .reduction =
                          call->reduction == DL_AVG ? DL_SUM : call->reduction};

    return hosts->board == NULL ? DL_OK
                                : dl_reduce_board(hosts->exchange, phase, &within);
}

dl_status
dl_reduction_row(dl_hosts *hosts, size_t count, dl_dtype dtype, dl_tensor *row)
{
    uint8_t *room;
    size_t item_size = dl_dtype_size(dtype);

    DL_TRY(dl_hosts_room(&hosts->work, count * item_size, &room));
    *row = (dl_tensor){
        .data = room,
        .count = count,
        .item_size = item_size,
        .dtype = dtype,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
    return DL_OK;
}

void
dl_reduction_copy(uint8_t *target, const dl_tensor *tensor, const dl_call *call)
{
    dl_strided_gather_part(target, tensor, 0, dl_tensor_size(tensor));
    if (call->reduction == DL_PREMUL_SUM) {
        dl_reduce_scale(target, tensor->dtype, target, tensor->count, call->factor);
    }
}

/* Runs all three levels.  `root` is the host that gets the result; -1: all do. */
static dl_status
run_levels(dl_hosts *hosts, const dl_op_context *op, const dl_call *call, int root,
           dl_leaders_fn *run)
{
    const dl_leaders between = dl_reduction_leaders(hosts, call, root);
    const dl_op_context *first = root < 0
                                     ? dl_hosts_first(hosts, op)
                                     : dl_hosts_first_one_way(hosts, op, DL_REDUCE);

    DL_TRY(dl_reduction_within(hosts, first, call));
    const dl_op_context *last = dl_hosts_last(hosts);
    if (dl_layout_leads(hosts->layout)) {
        DL_TRY(run(&between));
    }
    return dl_leaders_gets_result(&between, hosts->layout->host)
               ? dl_hosts_broadcast_within(hosts, last, &call->tensor, 0)
               : dl_hosts_arrive(hosts, last);
}

/* Reduces the tensor, which is contiguous. */
static dl_status
reduce_to_host(dl_hosts *hosts, const dl_op_context *op, const dl_call *call, int root)
{
    const dl_tensor *tensor = &call->tensor;
    dl_call plain = dl_reduction_call(tensor, call->reduction);
    dl_reduction chosen = dl_reduction_of(hosts, root < 0 ? DL_ALL_REDUCE : DL_REDUCE,
                                          tensor->dtype, tensor->count);

    if (!chosen.is_widened) {
        return run_levels(hosts, op, &plain, root, chosen.run);
    }
    DL_TRY(dl_reduction_row(hosts, tensor->count, DL_FLOAT32, &plain.tensor));
    dl_reduce_widen(plain.tensor.data, tensor->dtype, tensor->data, tensor->count);
    DL_TRY(run_levels(hosts, op, &plain, root, chosen.run));
    dl_reduce_narrow(tensor->data, tensor->dtype, plain.tensor.data, tensor->count);
    return DL_OK;
}

dl_status
dl_hosts_all_reduce(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    return reduce_to_host(hosts, op, call, -1);
}

/* Returns whether the tensor itself can be reduced: it is the root's, which gets the
 * result, or that of the other one of two ranks, which is only sent. */
static bool
is_own_enough(const dl_hosts *hosts, const dl_call *call)
{
    const dl_layout *layout = hosts->layout;

    return layout->host_count == layout->size && dl_tensor_is_plain(&call->tensor)
           && call->reduction != DL_PREMUL_SUM
           && (layout->rank == call->root || layout->size == 2);
}

/* Works on a copy otherwise, because the tensors of ranks other than the root do not
 * change. */
dl_status
dl_hosts_reduce(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    const dl_tensor *tensor = &call->tensor;
    int root = hosts->layout->host_of[call->root];
    dl_call copy = *call;
    uint8_t *room;

    if (is_own_enough(hosts, call)) {
        return reduce_to_host(hosts, op, call, root);
    }
    DL_TRY(dl_hosts_room(&hosts->flat, dl_tensor_size(tensor), &room));
    copy.tensor.data = room;
    copy.tensor.is_contiguous = true;
    dl_reduction_copy(room, tensor, call);
    DL_TRY(reduce_to_host(hosts, op, &copy, root));
    if (hosts->layout->rank == call->root) {
        dl_strided_scatter_part(tensor, room, 0, dl_tensor_size(tensor));
    }
    return DL_OK;
}
