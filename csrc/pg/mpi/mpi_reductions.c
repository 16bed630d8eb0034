/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions.  Small arrays follow the cards, and are reduced here in the order of
 * ranks; others are reduced by MPI, as this library promises: floats shorter than 32 bits
 * are widened to float32 and rounded once, at the end; operations on bool are logical;
 * AVG is a sum and a division.  What MPI does not reduce alike is reduced as by a function
 * (pg/function_reduction.h): MIN and MAX of floats, which propagate NaN, those of unsigned
 * integers, of which MPICH 4.0 takes the largest for negative, sums of integers of 8 and 16
 * bits, which Open MPI 4.1 saturates, and reduce_scatter. */
#include "pg/function_reduction.h"
#include "pg/mpi/mpi_state.h"
#include "tensor/strided.h"

typedef struct reduction {
    dl_reduce_op op;
    double factor;
    dl_dtype dtype;   /* of the arrays */
    dl_dtype worked;  /* that the reduction computes in */
    size_t item_size; /* of an element of `worked` */
    dl_mpi_handle type;
    dl_mpi_handle mpi_op; /* 0: MPI has none */
} reduction;

/* A reduction by one of the library's own kernels. */
typedef struct kernel_reducer {
    dl_reducer base;
    dl_reduce_fn kernel;
} kernel_reducer;

/* A bool is a byte of 0 or 1, and MPI's logical operations accept integers. */
static dl_mpi_handle
type_of(const dl_mpi_table *mpi, dl_dtype dtype)
{
    const dl_mpi_handle types[DL_DTYPE_COUNT] = {
        [DL_BOOL] = mpi->uint8,
        [DL_INT8] = mpi->int8,
        [DL_UINT8] = mpi->uint8,
        [DL_INT16] = mpi->int16,
        [DL_UINT16] = mpi->uint16,
        [DL_INT32] = mpi->int32,
        [DL_UINT32] = mpi->uint32,
        [DL_INT64] = mpi->int64,
        [DL_UINT64] = mpi->uint64,
        [DL_FLOAT32] = mpi->float32,
        [DL_FLOAT64] = mpi->float64,
        [DL_COMPLEX64] = mpi->complex64,
        [DL_COMPLEX128] = mpi->complex128,
    };

    return types[dtype];
}

static dl_mpi_handle
op_of(const dl_mpi_table *mpi, dl_reduce_op op)
{
    const dl_mpi_handle ops[DL_REDUCE_OP_COUNT] = {
        [DL_SUM] = mpi->sum,         [DL_AVG] = mpi->sum, [DL_PREMUL_SUM] = mpi->sum,
        [DL_PRODUCT] = mpi->product, [DL_MIN] = mpi->min, [DL_MAX] = mpi->max,
        [DL_BAND] = mpi->band,       [DL_BOR] = mpi->bor, [DL_BXOR] = mpi->bxor,
    };

    return ops[op];
}

/* The operations of the kernels for bool: any, all, and an odd number of true
 * values. */
static dl_mpi_handle
logical_op_of(const dl_mpi_table *mpi, dl_reduce_op op)
{
    const dl_mpi_handle ops[DL_REDUCE_OP_COUNT] = {
        [DL_SUM] = mpi->lor,   [DL_MAX] = mpi->lor,   [DL_BOR] = mpi->lor,
        [DL_MIN] = mpi->land,  [DL_BAND] = mpi->land, [DL_PRODUCT] = mpi->land,
        [DL_BXOR] = mpi->lxor,
    };

    return ops[op];
}

/* Returns 0 where MPI's operation differs or is wrong. */
static dl_mpi_handle
choose_op(const dl_mpi_table *mpi, dl_reduce_op op, dl_dtype worked)
{
    bool is_order = op == DL_MIN || op == DL_MAX;
    bool is_sum = op == DL_SUM || op == DL_AVG || op == DL_PREMUL_SUM;
    bool is_signed = worked == DL_INT8 || worked == DL_INT16 || worked == DL_INT32
                     || worked == DL_INT64;

    if (worked == DL_BOOL) {
        return logical_op_of(mpi, op);
    }
    bool is_left = (is_order && !is_signed) || (is_sum && dl_dtype_size(worked) < 4);
    return is_left ? 0 : op_of(mpi, op);
}

static reduction
reduction_of(const dl_mpi_backend *self, const dl_call *call)
{
    dl_dtype worked = dl_reduce_dtype(call->tensor.dtype);

    return (reduction){
        .op = call->reduction,
        .factor = call->factor,
        .dtype = call->tensor.dtype,
        .worked = worked,
        .item_size = dl_dtype_size(worked),
        .type = type_of(self->mpi, worked),
        .mpi_op = choose_op(self->mpi, call->reduction, worked),
    };
}

static size_t
size_of(const reduction *how, const dl_tensor *tensor)
{
    return tensor->count * how->item_size;
}

/* Copies the array to `target`: contiguous, multiplied by the factor of PREMUL_SUM, and
 * widened; `shorts` has room for it unwidened. */
static void
load_array(const reduction *how, const dl_tensor *tensor, void *target, void *shorts)
{
    bool is_wide = how->worked == how->dtype;
    void *row = is_wide ? target : shorts;

    if (tensor->count == 0) {
        return;
    }
    if (row != tensor->data) {
        dl_strided_gather_part(row, tensor, 0, dl_tensor_size(tensor));
    }
    if (how->op == DL_PREMUL_SUM) {
        dl_reduce_scale(row, how->dtype, row, tensor->count, how->factor);
    }
    if (!is_wide) {
        dl_reduce_widen(target, how->dtype, row, tensor->count);
    }
}

/* Copies a result to the array, for AVG after the division; behind `source` there is
 * room for it unwidened. */
static void
store_array(const reduction *how, const dl_tensor *tensor, void *source, int divisor)
{
    void *row = source;

    if (tensor->count == 0) {
        return;
    }
    if (how->op == DL_AVG) {
        dl_reduce_divide(source, how->worked, tensor->count, divisor);
    }
    if (how->worked != how->dtype) {
        row = (char *)source + size_of(how, tensor);
        dl_reduce_narrow(row, how->dtype, source, tensor->count);
    }
    if (row != tensor->data) {
        dl_strided_scatter_part(tensor, row, 0, dl_tensor_size(tensor));
    }
}

/* Loads the array with room behind it for the same unwidened. */
static void
load(const reduction *how, const dl_tensor *tensor, char *data)
{
    load_array(how, tensor, data, data + size_of(how, tensor));
}

/* Reduces small arrays, which follow the cards: this rank gets the result of the first
 * `ranks`, or keeps its array if that is 0.  Blocks that are no longer needed, or not
 * there yet, are the room for what is not widened. */
static dl_status
reduce_along(dl_mpi_backend *self, const dl_call *call, const reduction *how,
             dl_mpi_way way, int ranks)
{
    const dl_tensor *tensor = &call->tensor;
    dl_reduce_fn kernel = dl_reduce_kernel(how->op, how->worked);

    DL_TRY(dl_mpi_begin(self, way, call->root, size_of(how, tensor)));
    load(how, tensor, dl_mpi_block(self, self->rank));
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    DL_TRY(dl_mpi_finish(self));
    char *result = dl_mpi_block(self, 0);
    for (int rank = 1; rank < ranks && tensor->count > 0; rank++) {
        kernel(result, result, dl_mpi_block(self, rank), tensor->count);
    }
    if (ranks > 0) {
        store_array(how, tensor, result, self->size);
    }
    return DL_OK;
}

static dl_status
combine_by_kernel(const dl_reducer *reducer, const void *left, void *right,
                  size_t count)
{
    const kernel_reducer *self = (const kernel_reducer *)(const void *)reducer;

    self->kernel(right, left, right, count);
    return DL_OK;
}

/* Runs a call on arrays of the dtype that the reduction computes in.  Its exchanges are
 * operations of this backend. */
static dl_status
run_by_function(dl_mpi_backend *self, const reduction *how, dl_call *call)
{
    kernel_reducer reducer = {
        {.combine = combine_by_kernel,
         .name = dl_reduce_op_name(how->op),
         .unit = how->item_size},
        dl_reduce_kernel(how->op, how->worked),
    };
    const dl_op_context *op = self->op;
    _Atomic uint64_t sequence = op->sequence;
    dl_function_reduction asked = {.backend = &self->base,
                                   .context = op,
                                   .sequence = &sequence,
                                   .rank = self->rank,
                                   .size = self->size};

    call->reducer = &reducer.base;
    dl_status status = dl_function_reduction_run(&asked, call);
    self->op = op;
    return status;
}

/* Returns memory as a contiguous array of the dtype that the reduction computes in. */
static dl_tensor
widened(const reduction *how, char *data, size_t count)
{
    return (dl_tensor){.data = data,
                       .count = count,
                       .item_size = how->item_size,
                       .dtype = how->worked,
                       .is_contiguous = true,
                       .is_writable = true};
}

/* Describes the inputs one behind the other in `data`, as the reduction computes in. */
static void
load_inputs(const reduction *how, const dl_tensor *inputs, int count, char *data,
            char *shorts, dl_tensor *wide)
{
    for (int i = 0; i < count; i++) {
        load_array(how, &inputs[i], data, shorts);
        wide[i] = widened(how, data, inputs[i].count);
        data += size_of(how, &inputs[i]);
    }
}

/* Arrays that are not widened are left to the function.  Memory for the others is not
 * that of the operations, which these use. */
static dl_status
reduce_by_function(dl_mpi_backend *self, const dl_call *call, const reduction *how,
                   bool is_kept)
{
    bool scatters = call->op == DL_REDUCE_SCATTER;
    const dl_tensor *inputs = scatters ? call->inputs : &call->tensor;
    int count = scatters ? self->size : 1;
    size_t total = 0;
    dl_call inner = *call;
    dl_buffer memory = {0};

    if (how->worked == how->dtype && how->op != DL_PREMUL_SUM && how->op != DL_AVG) {
        return run_by_function(self, how, &inner);
    }
    for (int i = 0; i < count; i++) {
        total += size_of(how, &inputs[i]);
    }
    size_t size = (size_t)count * sizeof(dl_tensor) + 2 * total;
    DL_TRY(dl_buffer_reserve(&memory, size + size_of(how, &call->tensor)));
    dl_tensor *wide = (dl_tensor *)(void *)memory.data;
    char *data = (char *)(wide + count), *result = scatters ? data + total : data;
    load_inputs(how, inputs, count, data, result + size_of(how, &call->tensor), wide);
    inner.inputs = wide;
    inner.tensor = widened(how, result, call->tensor.count);
    dl_status status = run_by_function(self, how, &inner);
    if (status == DL_OK && !is_kept) {
        store_array(how, &call->tensor, result, self->size);
    }
    dl_buffer_fini(&memory);
    return status;
}

/* Starts one of MPI's reductions in place. */
static int
start_piece(const dl_mpi_backend *self, const dl_call *call, const reduction *how,
            const dl_mpi_part *piece, dl_mpi_handle *request)
{
    const dl_mpi_table *mpi = self->mpi;
    dl_mpi_handle comm = self->comm->handle;
    bool is_sender = call->op == DL_REDUCE && self->rank != call->root;
    const void *input = is_sender ? piece->data : mpi->abi.in_place;

    switch (call->op) {
    case DL_REDUCE:
        return mpi->ireduce(input, piece->data, piece->count, piece->type, how->mpi_op,
                            call->root, comm, request);
    case DL_SCAN:
        return mpi->iscan(input, piece->data, piece->count, piece->type, how->mpi_op,
                          comm, request);
    case DL_EXSCAN:
        return mpi->iexscan(input, piece->data, piece->count, piece->type, how->mpi_op,
                            comm, request);
    default:
        return mpi->iallreduce(input, piece->data, piece->count, piece->type,
                               how->mpi_op, comm, request);
    }
}

/* Starts a reduction of `size` bytes, in pieces that an int counts. */
static dl_status
start_pieces(dl_mpi_backend *self, const dl_call *call, const reduction *how,
             char *data, size_t size)
{
    static const char *const names[DL_OP_TYPE_COUNT] = {
        [DL_ALL_REDUCE] = "MPI_Iallreduce",
        [DL_REDUCE] = "MPI_Ireduce",
        [DL_SCAN] = "MPI_Iscan",
        [DL_EXSCAN] = "MPI_Iexscan",
    };

    for (size_t at = 0; at < size; at += self->comm->piece) {
        size_t left = size - at;
        size_t bytes = left < self->comm->piece ? left : self->comm->piece;
        dl_mpi_part piece = {data + at, (int)(bytes / how->item_size), how->type};
        dl_mpi_handle request = 0;
        int result = start_piece(self, call, how, &piece, &request);
        DL_TRY(dl_mpi_add(self, result, request, names[call->op], -1));
    }
    return DL_OK;
}

/* Reduces arrays by MPI in place: in the array itself if it is contiguous, aligned, to be
 * changed and not widened; otherwise in memory with room behind it for it unwidened. */
static dl_status
reduce_by_mpi(dl_mpi_backend *self, const dl_call *call, const reduction *how,
              dl_mpi_way way, bool is_kept)
{
    const dl_tensor *tensor = &call->tensor;
    size_t size = size_of(how, tensor);
    bool is_array = size > DL_MPI_STAGED && how->worked == how->dtype
                    && tensor->is_contiguous && !is_kept && how->op != DL_PREMUL_SUM
                    && (uintptr_t)tensor->data % how->item_size == 0;

    DL_TRY(dl_mpi_begin(self, way, call->root, 0));
    char *data =
        is_array ? tensor->data : dl_mpi_stage(self, size + dl_tensor_size(tensor));
    DL_TRY(data == NULL ? dl_fail_no_memory() : DL_OK);
    DL_TRY(dl_mpi_send_cards(self, size, is_array));
    load(how, tensor, data);
    DL_TRY(start_pieces(self, call, how, data, size));
    DL_TRY(dl_mpi_finish(self));
    if (!is_kept) {
        store_array(how, tensor, data, self->size);
    }
    return DL_OK;
}

/* Reduces one array: this rank gets the result of the first `ranks`, or keeps its array
 * if that is 0. */
static dl_status
reduce(dl_mpi_backend *self, const dl_call *call, dl_mpi_way way, int ranks)
{
    reduction how = reduction_of(self, call);

    if (size_of(&how, &call->tensor) <= dl_mpi_room(self, way)) {
        return reduce_along(self, call, &how, way, ranks);
    }
    return how.mpi_op == 0 ? reduce_by_function(self, call, &how, ranks == 0)
                           : reduce_by_mpi(self, call, &how, way, ranks == 0);
}

dl_status
dl_mpi_all_reduce(dl_mpi_backend *self, const dl_call *call)
{
    return reduce(self, call, DL_MPI_ALL, self->size);
}

/* The arrays of ranks other than the root stay as they are. */
dl_status
dl_mpi_reduce(dl_mpi_backend *self, const dl_call *call)
{
    return reduce(self, call, DL_MPI_UP, self->rank == call->root ? self->size : 0);
}

/* MPI leaves the first rank's result of an exscan undefined; that rank keeps its
 * array. */
dl_status
dl_mpi_scan(dl_mpi_backend *self, const dl_call *call)
{
    return reduce(self, call, DL_MPI_ALL, self->rank + (call->op == DL_EXSCAN ? 0 : 1));
}

/* An exchange of the blocks and a reduction here take fewer messages than
 * MPI_Ireduce_scatter, which some libraries carry out as a reduction to one rank. */
dl_status
dl_mpi_reduce_scatter(dl_mpi_backend *self, const dl_call *call)
{
    reduction how = reduction_of(self, call);

    return reduce_by_function(self, call, &how, false);
}
