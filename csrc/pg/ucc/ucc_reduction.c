/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_reduction.h"

#include "pg/ucc/ucc_state.h"
#include "tensor/strided.h"

static const int dtypes[DL_DTYPE_COUNT] = {
    [DL_BOOL] = DL_UCC_UINT8,
    [DL_INT8] = DL_UCC_INT8,
    [DL_UINT8] = DL_UCC_UINT8,
    [DL_INT16] = DL_UCC_INT16,
    [DL_UINT16] = DL_UCC_UINT16,
    [DL_INT32] = DL_UCC_INT32,
    [DL_UINT32] = DL_UCC_UINT32,
    [DL_INT64] = DL_UCC_INT64,
    [DL_UINT64] = DL_UCC_UINT64,
    [DL_FLOAT32] = DL_UCC_FLOAT32,
    [DL_FLOAT64] = DL_UCC_FLOAT64,
    [DL_COMPLEX64] = DL_UCC_COMPLEX64,
    [DL_COMPLEX128] = DL_UCC_COMPLEX128,
};

/* AVG divides and PREMUL_SUM multiplies in this process, after or before UCC's sum. */
static const int ops[DL_REDUCE_OP_COUNT] = {
    [DL_SUM] = DL_UCC_SUM, [DL_AVG] = DL_UCC_SUM,         [DL_PREMUL_SUM] = DL_UCC_SUM,
    [DL_MIN] = DL_UCC_MIN, [DL_PRODUCT] = DL_UCC_PRODUCT, [DL_MAX] = DL_UCC_MAX,
    [DL_BOR] = DL_UCC_BOR, [DL_BAND] = DL_UCC_BAND,       [DL_BXOR] = DL_UCC_BXOR,
};

/* A bool is a byte of 0 or 1: its sum, a logical or, is the maximum. */
static const int ops_of_bool[DL_REDUCE_OP_COUNT] = {
    [DL_SUM] = DL_UCC_MAX,   [DL_MAX] = DL_UCC_MAX, [DL_BOR] = DL_UCC_MAX,
    [DL_BAND] = DL_UCC_MIN,  [DL_MIN] = DL_UCC_MIN, [DL_PRODUCT] = DL_UCC_MIN,
    [DL_BXOR] = DL_UCC_BXOR,
};

/* Sums of complex numbers are those of pairs of floats, because UCC before 1.1 has no
 * complex numbers. */
dl_ucc_reduction
dl_ucc_reduction_of(dl_reduce_op op, dl_dtype dtype)
{
    dl_dtype computed = dl_reduce_dtype(dtype);
    bool is_complex = computed == DL_COMPLEX64 || computed == DL_COMPLEX128;
    dl_ucc_reduction found = {
        .dtype = dtypes[computed],
        .op = computed == DL_BOOL ? ops_of_bool[op] : ops[op],
        .per_element = 1,
        .number_size = dl_dtype_size(computed),
        .is_widened = computed != dtype,
    };

    if (is_complex && found.op == DL_UCC_SUM) {
        found.dtype = computed == DL_COMPLEX64 ? DL_UCC_FLOAT32 : DL_UCC_FLOAT64;
        found.per_element = 2;
        found.number_size /= 2;
    }
    return found;
}

/* A collective that reduces. */
typedef struct folding {
    dl_ucc_backend *self;
    const dl_call *call;
    dl_ucc_reduction kind;
    dl_dtype computed; /* of the numbers that UCC reduces */
    dl_ucc_args args;
    dl_ucc_layout from;
} folding;

static dl_status
begin_folding(folding *fold, dl_backend *backend, const dl_op_context *op,
              const dl_call *call)
{
    *fold = (folding){
        .self = dl_ucc_self(backend),
        .call = call,
        .kind = dl_ucc_reduction_of(call->reduction, call->tensor.dtype),
        .computed = dl_reduce_dtype(call->tensor.dtype),
    };
    fold->args.op = fold->kind.op;
    return dl_ucc_rendezvous(fold->self, op);
}

static bool
is_aligned(const void *data, size_t alignment)
{
    return (uintptr_t)data % alignment == 0;
}

static dl_ucc_side
side_of(const folding *fold, void *data, size_t count)
{
    return (dl_ucc_side){
        .one = {data, count * fold->kind.per_element, (uint64_t)fold->kind.dtype,
                DL_UCC_HOST},
    };
}

static size_t
element_size(const folding *fold)
{
    return fold->kind.number_size * fold->kind.per_element;
}

static dl_status
widen_input(folding *fold, size_t count, void **data)
{
    dl_ucc_backend *self = fold->self;

    DL_TRY(dl_ucc_layout_read(&fold->from, &self->raw, false));
    DL_TRY(dl_ucc_row_reserve(&self->input, count * sizeof(float)));
    *data = self->input.data;
    dl_reduce_widen(*data, fold->call->tensor.dtype, fold->from.data, count);
    return DL_OK;
}

/* Prepares this rank's input in the form that UCC takes, in place if nothing has to be
 * changed. */
static dl_status
prepare_input(folding *fold, const dl_tensor *blocks, int block_count, void **data)
{
    dl_ucc_backend *self = fold->self;
    bool is_scaled = fold->call->reduction == DL_PREMUL_SUM;

    dl_ucc_layout_init(&fold->from, blocks, block_count, self->lengths);
    size_t count = fold->from.size / blocks[0].item_size;
    if (fold->kind.is_widened) {
        DL_TRY(widen_input(fold, count, data));
    } else {
        DL_TRY(dl_ucc_layout_read(&fold->from, &self->input, is_scaled));
        if (!is_aligned(fold->from.data, fold->kind.number_size)) {
            DL_TRY(dl_ucc_layout_read(&fold->from, &self->input, true));
        }
        *data = fold->from.data;
    }
    if (is_scaled) {
        dl_reduce_scale(*data, fold->computed, *data, count, fold->call->factor);
    }
    return DL_OK;
}

/* Chooses where UCC writes the result: the target itself if possible. */
static dl_status
place_output(folding *fold, const dl_tensor *target, bool is_input, void **data)
{
    dl_ucc_backend *self = fold->self;

    if (!is_input && !fold->kind.is_widened && target->is_contiguous
        && is_aligned(target->data, fold->kind.number_size)) {
        *data = target->data;
        return DL_OK;
    }
    DL_TRY(dl_ucc_row_reserve(&self->output, target->count * element_size(fold)));
    *data = self->output.data;
    return DL_OK;
}

/* Moves the result from where UCC wrote it to the caller's array. */
static dl_status
write_result(folding *fold, const dl_tensor *target, void *data)
{
    dl_ucc_backend *self = fold->self;

    if (fold->call->reduction == DL_AVG) {
        dl_reduce_divide(data, fold->computed, target->count, self->size);
    }
    if (data == target->data) {
        return DL_OK;
    }
    if (fold->kind.is_widened) {
        DL_TRY(dl_ucc_row_reserve(&self->raw, dl_tensor_size(target)));
        dl_reduce_narrow(self->raw.data, fold->call->tensor.dtype, data, target->count);
        data = self->raw.data;
    }
    dl_strided_scatter_part(target, data, 0, dl_tensor_size(target));
    return DL_OK;
}

dl_status
dl_ucc_all_reduce(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    const dl_tensor *tensor = &call->tensor;
    folding fold;
    void *data;

    DL_TRY(begin_folding(&fold, backend, op, call));
    if (tensor->count == 0) {
        return DL_OK;
    }
    DL_TRY(prepare_input(&fold, tensor, 1, &data));
    fold.args.collective = DL_UCC_ALL_REDUCE;
    fold.args.mask = DL_UCC_ARGS_FLAGS;
    fold.args.flags = DL_UCC_IN_PLACE;
    fold.args.target = side_of(&fold, data, tensor->count);
    DL_TRY(dl_ucc_run(fold.self, op, &fold.args, 2 * dl_tensor_size(tensor)));
    return write_result(&fold, tensor, data);
}

dl_status
dl_ucc_reduce(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    const dl_tensor *tensor = &call->tensor;
    folding fold;
    void *input;
    void *output = NULL;

    DL_TRY(begin_folding(&fold, backend, op, call));
    if (tensor->count == 0) {
        return DL_OK;
    }
    bool is_root = call->root == fold.self->rank;
    DL_TRY(prepare_input(&fold, tensor, 1, &input));
    if (is_root) {
        DL_TRY(place_output(&fold, tensor, true, &output));
    }
    fold.args.collective = DL_UCC_REDUCE;
    fold.args.root = (uint64_t)call->root;
    fold.args.source = side_of(&fold, input, tensor->count);
    fold.args.target = side_of(&fold, output, is_root ? tensor->count : 0);
    DL_TRY(dl_ucc_run(fold.self, op, &fold.args, 2 * dl_tensor_size(tensor)));
    return is_root ? write_result(&fold, tensor, output) : DL_OK;
}

dl_status
dl_ucc_reduce_scatter(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    folding fold;
    void *input;
    void *output;

    DL_TRY(begin_folding(&fold, backend, op, call));
    DL_TRY(prepare_input(&fold, call->inputs, fold.self->size, &input));
    if (fold.from.size == 0) {
        return DL_OK;
    }
    bool is_input = call->inputs[fold.self->rank].data == call->tensor.data;
    DL_TRY(place_output(&fold, &call->tensor, is_input, &output));
    fold.args.collective = DL_UCC_REDUCE_SCATTER;
    fold.args.source = side_of(&fold, input, fold.from.size / call->tensor.item_size);
    fold.args.target = side_of(&fold, output, call->tensor.count);
    DL_TRY(dl_ucc_run(fold.self, op, &fold.args, 2 * fold.from.size));
    return write_result(&fold, &call->tensor, output);
}
