/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/cpu_state.h"
#include "pg/cpu/operation_text.h"
#include "tensor/strided.h"

/* Makes `*plain` a contiguous copy of `tensor` in the staging buffer. */
static dl_status
copy_to_staging(dl_cpu_backend *self, const dl_tensor *tensor, dl_tensor *plain)
{
    size_t size = dl_tensor_size(tensor);

    dl_buffer_clear(&self->staging);
    DL_TRY(dl_buffer_reserve(&self->staging, size));
    *plain = *tensor;
    plain->data = self->staging.data;
    plain->is_contiguous = true;
    dl_strided_gather_part(plain->data, tensor, 0, size);
    return DL_OK;
}

/* Tensors that are not plain are reduced through a copy. */
static dl_status
flatten_array(dl_cpu_backend *self, const dl_tensor *tensor, dl_tensor *plain)
{
    *plain = *tensor;
    return dl_tensor_is_plain(tensor) ? DL_OK : copy_to_staging(self, tensor, plain);
}

static void
unflatten_array(const dl_tensor *tensor, const dl_tensor *plain)
{
    if (plain->data != tensor->data) {
        dl_strided_scatter_part(tensor, plain->data, 0, dl_tensor_size(tensor));
    }
}

/* Multiplies by the factor of PREMUL_SUM, before the sum. */
static void
scale_array(const dl_tensor *plain, dl_reduce_op op, double factor)
{
    if (op == DL_PREMUL_SUM) {
        dl_reduce_scale(plain->data, plain->dtype, plain->data, plain->count, factor);
    }
}

/* A group of one rank only copies its own block. */
static dl_status
copy_own_block(const dl_tensor *input, const dl_tensor *output)
{
    if (input->data != output->data) {
        dl_strided_copy_part(output, input, 0, dl_tensor_size(input));
    }
    return DL_OK;
}

static dl_cpu_backend *
begin_operation(dl_backend *backend, const dl_op_context *op)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (dl_cpu_has_hosts(self)) {
        dl_traffic_begin(&self->traffic, op);
    }
    return self;
}

/* Gives up the group after a failure: this rank cannot post messages any more, so no
 * rank may go on to wait for one. */
static void
give_up_group(dl_cpu_backend *self, const dl_op_context *op)
{
    dl_error cause = *dl_last_error();
    dl_error message = dl_operation_error_for_others(
        &cause,
        dl_operation_describe(op->fingerprint.op, op->sequence, self->group_name).text);

    dl_cpu_give_up(self, &message);
    (void)dl_rethrow(&cause);
}

/* Ends an operation.  After a failure, informs the other ranks. */
static dl_status
end_operation(dl_cpu_backend *self, const dl_op_context *op, dl_status status)
{
    if (status != DL_OK && self->size > 1) {
        dl_board_break(&self->board, dl_cpu_has_hosts(self)
                                         ? dl_hosts_phase_of(&self->hosts, op)
                                         : op);
    }
    if (status != DL_OK && dl_cpu_has_hosts(self)) {
        dl_traffic_break(&self->traffic, NULL, 0);
    }
    if (dl_cpu_has_hosts(self)) {
        dl_traffic_end(&self->traffic);
    }
    if (status != DL_OK && status != DL_UNSUPPORTED) {
        give_up_group(self, op);
    }
    return status;
}

static dl_status
all_reduce_plain(dl_cpu_backend *self, const dl_op_context *op, const dl_call *call)
{
    if (self->size == 1) {
        return DL_OK;
    }
    return dl_cpu_has_hosts(self) ? dl_hosts_all_reduce(&self->hosts, op, call)
                                  : dl_all_reduce_select(&self->board, op, call);
}

/* A plain array is passed without a copy of the call, which would take a tenth of the
 * time of a small operation. */
static dl_status
all_reduce(dl_cpu_backend *self, const dl_op_context *op, const dl_call *call)
{
    bool is_scaled = call->reduction == DL_PREMUL_SUM;

    if (!is_scaled && (self->size == 1 || dl_tensor_is_plain(&call->tensor))) {
        return all_reduce_plain(self, op, call);
    }
    dl_call plain = *call;
    DL_TRY(flatten_array(self, &call->tensor, &plain.tensor));
    scale_array(&plain.tensor, call->reduction, call->factor);
    DL_TRY(all_reduce_plain(self, op, &plain));
    unflatten_array(&call->tensor, &plain.tensor);
    return DL_OK;
}

dl_status
dl_cpu_all_reduce(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_cpu_backend *self = begin_operation(backend, op);

    return end_operation(self, op, all_reduce(self, op, call));
}

/* Moves blocks among hosts or over the board; in a group of one rank it copies `from`
 * to `to`.  Inlined, so that the functions are called directly. */
static inline __attribute__((always_inline)) dl_status
move_blocks(dl_hosts_fn *among_hosts, dl_exchange_fn *on_board, dl_backend *backend,
            const dl_op_context *op, const dl_call *call, const dl_tensor *from,
            const dl_tensor *to)
{
    dl_cpu_backend *self = begin_operation(backend, op);

    if (dl_cpu_has_hosts(self)) {
        return end_operation(self, op, among_hosts(&self->hosts, op, call));
    }
    if (self->size == 1) {
        return copy_own_block(from, to);
    }
    return end_operation(self, op, on_board(&self->exchange, op, call));
}

dl_status
dl_cpu_broadcast(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    return move_blocks(dl_hosts_broadcast, dl_broadcast_board, backend, op, call,
                       &call->tensor, &call->tensor);
}

dl_status
dl_cpu_barrier(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_cpu_backend *self = begin_operation(backend, op);

    (void)call;
    if (dl_cpu_has_hosts(self)) {
        return end_operation(self, op, dl_hosts_barrier(&self->hosts, op));
    }
    return self->size == 1 ? DL_OK
                           : end_operation(self, op, dl_barrier_line(&self->board, op));
}

/* Runs on the root.  Other ranks send their arrays, which do not change. */
static dl_status
reduce_to_root(dl_cpu_backend *self, const dl_op_context *op, const dl_call *call)
{
    dl_call plain = *call;

    DL_TRY(flatten_array(self, &call->tensor, &plain.tensor));
    scale_array(&plain.tensor, call->reduction, call->factor);
    if (self->size > 1) {
        DL_TRY(dl_reduce_board(&self->exchange, op, &plain));
    }
    unflatten_array(&call->tensor, &plain.tensor);
    return DL_OK;
}

dl_status
dl_cpu_reduce(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_cpu_backend *self = begin_operation(backend, op);

    if (dl_cpu_has_hosts(self)) {
        return end_operation(self, op, dl_hosts_reduce(&self->hosts, op, call));
    }
    return end_operation(self, op,
                         self->rank == call->root
                             ? reduce_to_root(self, op, call)
                             : dl_reduce_board(&self->exchange, op, call));
}

static dl_status
scan_plain(dl_cpu_backend *self, const dl_op_context *op, const dl_call *plain)
{
    if (self->size == 1) {
        return DL_OK;
    }
    return dl_cpu_has_hosts(self) ? dl_hosts_scan(&self->hosts, op, plain)
                                  : dl_scan_select(&self->board, op, plain);
}

/* The first rank of an exscan multiplies a copy, because its array does not change. */
static dl_status
scan(dl_cpu_backend *self, const dl_op_context *op, const dl_call *call)
{
    dl_call plain = *call;
    bool is_kept = call->op == DL_EXSCAN && self->rank == 0;

    DL_TRY(is_kept && call->reduction == DL_PREMUL_SUM
               ? copy_to_staging(self, &call->tensor, &plain.tensor)
               : flatten_array(self, &call->tensor, &plain.tensor));
    scale_array(&plain.tensor, call->reduction, call->factor);
    DL_TRY(scan_plain(self, op, &plain));
    if (!is_kept) {
        unflatten_array(&call->tensor, &plain.tensor);
    }
    return DL_OK;
}

dl_status
dl_cpu_scan(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_cpu_backend *self = begin_operation(backend, op);

    return end_operation(self, op, scan(self, op, call));
}

static dl_status
reduce_scatter(dl_cpu_backend *self, const dl_op_context *op, const dl_call *call)
{
    const dl_tensor *input = &call->inputs[self->rank];
    dl_tensor own = *input;

    if (call->reduction == DL_PREMUL_SUM || !dl_tensor_is_plain(input)) {
        DL_TRY(copy_to_staging(self, input, &own));
        scale_array(&own, call->reduction, call->factor);
    }
    if (self->size == 1) {
        return copy_own_block(&own, &call->tensor);
    }
    return dl_reduce_scatter_board(&self->exchange, op, call, &own);
}

dl_status
dl_cpu_reduce_scatter(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_cpu_backend *self = begin_operation(backend, op);

    if (dl_cpu_has_hosts(self)) {
        return end_operation(self, op, dl_hosts_reduce_scatter(&self->hosts, op, call));
    }
    return end_operation(self, op, reduce_scatter(self, op, call));
}

dl_status
dl_cpu_all_gather(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    return move_blocks(dl_hosts_all_gather, dl_all_gather_board, backend, op, call,
                       &call->tensor, call->outputs);
}

dl_status
dl_cpu_gather(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    return move_blocks(dl_hosts_gather, dl_gather_board, backend, op, call,
                       &call->tensor, call->outputs);
}

dl_status
dl_cpu_scatter(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    return move_blocks(dl_hosts_scatter, dl_scatter_board, backend, op, call,
                       call->inputs, &call->tensor);
}

dl_status
dl_cpu_all_to_all(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    return move_blocks(dl_hosts_all_to_all, dl_all_to_all_board, backend, op, call,
                       call->inputs, call->outputs);
}
