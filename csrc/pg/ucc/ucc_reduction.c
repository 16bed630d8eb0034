/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_reduction.h"

#include "pg/ucc/ucc_state.h"
#include "tensor/strided.h"

#define NO_OP (-1)

/* Kinds of numbers, which differ in the operations that they support. */
typedef enum family {
    NONE = 0,
    INTEGER,
    REAL,
    COMPLEX,
    TRUTH,
} family;

static const struct {
    family family;
    int number;
} dtypes[DL_DTYPE_COUNT] = {
    [DL_BOOL] = {TRUTH, DL_UCC_UINT8},
    [DL_INT8] = {INTEGER, DL_UCC_INT8},
    [DL_UINT8] = {INTEGER, DL_UCC_UINT8},
    [DL_INT16] = {INTEGER, DL_UCC_INT16},
    [DL_UINT16] = {INTEGER, DL_UCC_UINT16},
    [DL_INT32] = {INTEGER, DL_UCC_INT32},
    [DL_UINT32] = {INTEGER, DL_UCC_UINT32},
    [DL_INT64] = {INTEGER, DL_UCC_INT64},
    [DL_UINT64] = {INTEGER, DL_UCC_UINT64},
    [DL_FLOAT32] = {REAL, DL_UCC_FLOAT32},
    [DL_FLOAT64] = {REAL, DL_UCC_FLOAT64},
    [DL_COMPLEX64] = {COMPLEX, DL_UCC_COMPLEX64},
    [DL_COMPLEX128] = {COMPLEX, DL_UCC_COMPLEX128},
};

/* AVG divides and PREMUL_SUM multiplies in this process, after or before UCC's sum. */
static int
op_of_real(dl_reduce_op op)
{
    switch (op) {
    case DL_SUM:
    case DL_AVG:
    case DL_PREMUL_SUM:
        return DL_UCC_SUM;
    case DL_PRODUCT:
        return DL_UCC_PRODUCT;
    case DL_MIN:
        return DL_UCC_MIN;
    case DL_MAX:
        return DL_UCC_MAX;
    default:
        return NO_OP;
    }
}

static int
op_of_integer(dl_reduce_op op)
{
    switch (op) {
    case DL_BAND:
        return DL_UCC_BAND;
    case DL_BOR:
        return DL_UCC_BOR;
    case DL_BXOR:
        return DL_UCC_BXOR;
    default:
        return op_of_real(op);
    }
}

/* A bool is a byte of 0 or 1: its sum, a logical or, is the maximum. */
static int
op_of_truth(dl_reduce_op op)
{
    switch (op) {
    case DL_SUM:
    case DL_MAX:
    case DL_BOR:
        return DL_UCC_MAX;
    case DL_PRODUCT:
    case DL_MIN:
    case DL_BAND:
        return DL_UCC_MIN;
    case DL_BXOR:
        return DL_UCC_BXOR;
    default:
        return NO_OP;
    }
}

static int
op_of(family family, dl_reduce_op op)
{
    int real = op_of_real(op);

    switch (family) {
    case INTEGER:
        return op_of_integer(op);
    case TRUTH:
        return op_of_truth(op);
    case REAL:
        return real;
    case COMPLEX:
        return real == DL_UCC_SUM || real == DL_UCC_PRODUCT ? real : NO_OP;
    default:
        return NO_OP;
    }
}

/* Uses pairs of floats, because UCC before 1.1 has no complex numbers. */
static void
use_float_pairs(dl_ucc_reduction *self)
{
    self->dtype = self->dtype == DL_UCC_COMPLEX64 ? DL_UCC_FLOAT32 : DL_UCC_FLOAT64;
    self->per_element = 2;
    self->number_size /= 2;
}

dl_status
dl_ucc_reduction_of(dl_reduce_op op, dl_dtype dtype, dl_ucc_reduction *reduction)
{
    dl_dtype computed = dl_reduce_dtype(dtype);
    family family = dtypes[computed].family;
    int found = op_of(family, op);

    if (found == NO_OP) {
        return dl_fail(DL_UNSUPPORTED, "UCC has no %s of %s", dl_reduce_op_name(op),
                       dl_dtype_name(dtype));
    }
    *reduction = (dl_ucc_reduction){
        .dtype = dtypes[computed].number,
        .op = found,
        .per_element = 1,
        .number_size = dl_dtype_size(computed),
        .is_widened = computed != dtype,
    };
    if (family == COMPLEX && found == DL_UCC_SUM) {
        use_float_pairs(reduction);
    }
    return DL_OK;
}

/* A collective that reduces. */
typedef struct folding {
    dl_ucc_backend *self;
    dl_ucc_reduction kind;
    dl_reduce_op reduce_op;
    double factor;
    dl_dtype dtype;    /* of the arrays */
    dl_dtype computed; /* of the numbers that UCC reduces */
    dl_ucc_args args;
    dl_ucc_layout from;
} folding;

static dl_status
begin_folding(folding *fold, dl_backend *backend, const dl_op_context *op,
              dl_dtype dtype, dl_reduce_op reduce_op)
{
    *fold = (folding){
        .self = dl_ucc_self(backend),
        .reduce_op = reduce_op,
        .dtype = dtype,
        .computed = dl_reduce_dtype(dtype),
    };
    DL_TRY(dl_ucc_rendezvous(fold->self, op));
    DL_TRY(dl_ucc_reduction_of(reduce_op, dtype, &fold->kind));
    fold->args.op = fold->kind.op;
    return DL_OK;
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
    dl_reduce_widen(*data, fold->dtype, fold->from.data, count);
    return DL_OK;
}

/* Prepares this rank's input in the form that UCC takes, in place if nothing has to be
 * changed. */
static dl_status
prepare_input(folding *fold, const dl_tensor *blocks, int block_count, void **data)
{
    dl_ucc_backend *self = fold->self;
    bool is_scaled = fold->reduce_op == DL_PREMUL_SUM;

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
        dl_reduce_scale(*data, fold->computed, *data, count, fold->factor);
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

    if (fold->reduce_op == DL_AVG) {
        dl_reduce_divide(data, fold->computed, target->count, self->size);
    }
    if (data == target->data) {
        return DL_OK;
    }
    if (fold->kind.is_widened) {
        DL_TRY(dl_ucc_row_reserve(&self->raw, dl_tensor_size(target)));
        dl_reduce_narrow(self->raw.data, fold->dtype, data, target->count);
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

    DL_TRY(begin_folding(&fold, backend, op, tensor->dtype, call->reduction));
    fold.factor = call->factor;
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

    DL_TRY(begin_folding(&fold, backend, op, tensor->dtype, call->reduction));
    fold.factor = call->factor;
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

    DL_TRY(begin_folding(&fold, backend, op, call->tensor.dtype, call->reduction));
    fold.factor = call->factor;
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
