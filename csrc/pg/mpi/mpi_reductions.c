/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions.  Small arrays follow the cards, and are reduced here in the order of
 * ranks; others are reduced by MPI, as this library promises: floats shorter than 32 bits
 * are widened to float32 and rounded once, at the end; operations on bool are logical;
 * AVG is a sum and a division.  What MPI does not reduce alike is reduced as by a function
 * (pg/function_reduction.h): MIN and MAX of floats, which propagate NaN, those of uint64,
 * of which MPICH 4.0 takes the largest for negative, and reduce_scatter. */
#include <string.h>

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

    if (worked == DL_BOOL) {
        return logical_op_of(mpi, op);
    }
    if (is_order
        && (worked == DL_FLOAT32 || worked == DL_FLOAT64 || worked == DL_UINT64)) {
        return 0;
    }
    return op_of(mpi, op);
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

/* Returns memory for an array of `count` elements as the reduction computes in, behind
 * which there is room for the same unwidened; NULL: there is none. */
static char *
stage(dl_mpi_backend *self, const reduction *how, size_t count)
{
    return dl_mpi_stage(self, count * (how->item_size + dl_dtype_size(how->dtype)));
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
        row = (char *)source + tensor->count * how->item_size;
        dl_reduce_narrow(row, how->dtype, source, tensor->count);
    }
    if (row != tensor->data) {
        dl_strided_scatter_part(tensor, row, 0, dl_tensor_size(tensor));
    }
}

/* Chooses where the data of one array are reduced: in the array itself, which MPI can
 * take if it is contiguous, aligned and not widened, or in staging memory. */
static dl_status
place(dl_mpi_backend *self, const reduction *how, const dl_tensor *tensor, char **data,
      bool *is_array)
{
    bool is_plain = how->worked == how->dtype && tensor->is_contiguous
                    && (uintptr_t)tensor->data % how->item_size == 0;

    *is_array = is_plain && size_of(how, tensor) > DL_MPI_STAGED;
    *data = *is_array ? tensor->data : stage(self, how, tensor->count);
    return *data == NULL ? dl_fail_no_memory() : DL_OK;
}

static void
load(const reduction *how, const dl_tensor *tensor, char *data)
{
    load_array(how, tensor, data, data + size_of(how, tensor));
}

/* Reduces what the first `ranks` ranks brought, from `offset` bytes on, into `target`. */
static void
fold_ranks(const dl_mpi_backend *self, const reduction *how, int ranks, char *target,
           size_t offset, size_t count)
{
    dl_reduce_fn kernel = dl_reduce_kernel(how->op, how->worked);

    if (count == 0 || ranks == 0) {
        return;
    }
    memcpy(target, (char *)dl_mpi_block(self, 0) + offset, count * how->item_size);
    for (int rank = 1; rank < ranks; rank++) {
        kernel(target, target, (char *)dl_mpi_block(self, rank) + offset, count);
    }
}

/* Reduces small arrays, of which this rank has the result of the first `ranks`; with 0 it
 * keeps its own. */
static dl_status
reduce_along(dl_mpi_backend *self, const dl_call *call, const reduction *how,
             dl_mpi_way way, int ranks)
{
    const dl_tensor *tensor = &call->tensor;
    char *data = stage(self, how, tensor->count);

    if (data == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_mpi_begin(self, way, call->root, size_of(how, tensor)));
    load_array(how, tensor, dl_mpi_block(self, self->rank), data);
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    DL_TRY(dl_mpi_finish(self));
    if (ranks > 0) {
        fold_ranks(self, how, ranks, data, 0, tensor->count);
        store_array(how, tensor, data, self->size);
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

/* Arrays that are not widened are left to the function.  Memory for the others is not
 * that of the operations, which these use. */
static dl_status
reduce_by_function(dl_mpi_backend *self, const dl_call *call, const reduction *how,
                   bool is_kept)
{
    const dl_tensor *tensor = &call->tensor;
    dl_call inner = *call;
    dl_buffer wide = {0};

    if (how->worked == how->dtype) {
        return run_by_function(self, how, &inner);
    }
    DL_TRY(dl_buffer_reserve(&wide, size_of(how, tensor) + dl_tensor_size(tensor)));
    char *data = (char *)wide.data;
    load(how, tensor, data);
    inner.tensor = widened(how, data, tensor->count);
    dl_status status = run_by_function(self, how, &inner);
    if (status == DL_OK && !is_kept) {
        store_array(how, tensor, data, self->size);
    }
    dl_buffer_fini(&wide);
    return status;
}

/* One of MPI's reductions, of which the piece is the output. */
typedef int start_fn(const dl_mpi_backend *self, const reduction *how,
                     const void *input, const dl_mpi_part *piece, int root,
                     dl_mpi_handle *request);

static int
start_all_reduce(const dl_mpi_backend *self, const reduction *how, const void *input,
                 const dl_mpi_part *piece, int root, dl_mpi_handle *request)
{
    (void)root;
    return self->mpi->iallreduce(input, piece, how->mpi_op, self->comm->handle,
                                 request);
}

static int
start_reduce(const dl_mpi_backend *self, const reduction *how, const void *input,
             const dl_mpi_part *piece, int root, dl_mpi_handle *request)
{
    const void *own = self->rank == root ? input : piece->data;

    return self->mpi->ireduce(own, piece, how->mpi_op, root, self->comm->handle,
                              request);
}

static int
start_scan(const dl_mpi_backend *self, const reduction *how, const void *input,
           const dl_mpi_part *piece, int root, dl_mpi_handle *request)
{
    (void)root;
    return self->mpi->iscan(input, piece, how->mpi_op, self->comm->handle, request);
}

static int
start_exscan(const dl_mpi_backend *self, const reduction *how, const void *input,
             const dl_mpi_part *piece, int root, dl_mpi_handle *request)
{
    (void)root;
    return self->mpi->iexscan(input, piece, how->mpi_op, self->comm->handle, request);
}

/* Starts a reduction in place of data of `size` bytes, in pieces that an int counts. */
static dl_status
start_pieces(dl_mpi_backend *self, const reduction *how, start_fn *start,
             const char *name, char *data, size_t size, int root)
{
    for (size_t at = 0; at < size; at += self->comm->piece) {
        size_t left = size - at;
        size_t bytes = left < self->comm->piece ? left : self->comm->piece;
        dl_mpi_part piece = {data + at, (int)(bytes / how->item_size), how->type};
        dl_mpi_handle request = 0;
        int result = start(self, how, self->mpi->in_place, &piece, root, &request);
        DL_TRY(dl_mpi_add(self, result, request, name, -1));
    }
    return DL_OK;
}

/* Reduces arrays by MPI in place; `is_kept` says that this rank keeps its own. */
static dl_status
reduce_by_mpi(dl_mpi_backend *self, const dl_call *call, const reduction *how,
              dl_mpi_way way, start_fn *start, const char *name, bool is_kept)
{
    const dl_tensor *tensor = &call->tensor;
    size_t size = size_of(how, tensor);
    bool is_array;
    char *data;

    DL_TRY(dl_mpi_begin(self, way, call->root, 0));
    DL_TRY(place(self, how, tensor, &data, &is_array));
    if (is_array && (is_kept || how->op == DL_PREMUL_SUM)) {
        is_array = false;
        data = stage(self, how, tensor->count);
        DL_TRY(data == NULL ? dl_fail_no_memory() : DL_OK);
    }
    DL_TRY(dl_mpi_send_cards(self, size, is_array));
    load(how, tensor, data);
    DL_TRY(start_pieces(self, how, start, name, data, size, call->root));
    DL_TRY(dl_mpi_finish(self));
    if (!is_kept) {
        store_array(how, tensor, data, self->size);
    }
    return DL_OK;
}

dl_status
dl_mpi_all_reduce(dl_mpi_backend *self, const dl_call *call)
{
    reduction how = reduction_of(self, call);

    if (size_of(&how, &call->tensor) <= dl_mpi_room(self, DL_MPI_ALL)) {
        return reduce_along(self, call, &how, DL_MPI_ALL, self->size);
    }
    return how.mpi_op == 0 ? reduce_by_function(self, call, &how, false)
                           : reduce_by_mpi(self, call, &how, DL_MPI_ALL,
                                           start_all_reduce, "MPI_Iallreduce", false);
}

/* The arrays of ranks other than the root stay as they are. */
dl_status
dl_mpi_reduce(dl_mpi_backend *self, const dl_call *call)
{
    reduction how = reduction_of(self, call);
    bool is_root = self->rank == call->root;

    if (size_of(&how, &call->tensor) <= dl_mpi_room(self, DL_MPI_UP)) {
        return reduce_along(self, call, &how, DL_MPI_UP, is_root ? self->size : 0);
    }
    return how.mpi_op == 0 ? reduce_by_function(self, call, &how, !is_root)
                           : reduce_by_mpi(self, call, &how, DL_MPI_UP, start_reduce,
                                           "MPI_Ireduce", !is_root);
}

/* MPI leaves the first rank's result of an exscan undefined; that rank keeps its
 * array. */
dl_status
dl_mpi_scan(dl_mpi_backend *self, const dl_call *call)
{
    reduction how = reduction_of(self, call);
    bool is_exclusive = call->op == DL_EXSCAN;

    if (size_of(&how, &call->tensor) <= dl_mpi_room(self, DL_MPI_ALL)) {
        return reduce_along(self, call, &how, DL_MPI_ALL,
                            self->rank + (is_exclusive ? 0 : 1));
    }
    bool is_kept = is_exclusive && self->rank == 0;
    if (how.mpi_op == 0) {
        return reduce_by_function(self, call, &how, is_kept);
    }
    return is_exclusive ? reduce_by_mpi(self, call, &how, DL_MPI_ALL, start_exscan,
                                        "MPI_Iexscan", is_kept)
                        : reduce_by_mpi(self, call, &how, DL_MPI_ALL, start_scan,
                                        "MPI_Iscan", false);
}

/* Describes the blocks of the inputs one behind the other in `data`, and loads them. */
static size_t
load_blocks(const dl_mpi_backend *self, const dl_call *call, const reduction *how,
            char *data, char *shorts, dl_tensor *blocks)
{
    size_t at = 0;

    for (int rank = 0; rank < self->size; rank++) {
        const dl_tensor *input = &call->inputs[rank];
        load_array(how, input, data + at, shorts);
        if (blocks != NULL) {
            blocks[rank] = widened(how, data + at, input->count);
        }
        at += size_of(how, input);
    }
    return at;
}

static dl_status
reduce_scatter_along(dl_mpi_backend *self, const dl_call *call, const reduction *how,
                     size_t total)
{
    size_t offset = 0;
    char *data = stage(self, how, total / how->item_size);

    if (data == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_mpi_begin(self, DL_MPI_ALL, 0, total));
    load_blocks(self, call, how, dl_mpi_block(self, self->rank), data, NULL);
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    DL_TRY(dl_mpi_finish(self));
    for (int rank = 0; rank < self->rank; rank++) {
        offset += size_of(how, &call->inputs[rank]);
    }
    fold_ranks(self, how, self->size, data, offset, call->tensor.count);
    store_array(how, &call->tensor, data, self->size);
    return DL_OK;
}

/* An exchange of the blocks and a reduction here take fewer messages than
 * MPI_Ireduce_scatter, which some libraries carry out as a reduction to one rank. */
static dl_status
reduce_scatter_by_function(dl_mpi_backend *self, const dl_call *call,
                           const reduction *how, size_t total)
{
    size_t size = size_of(how, &call->tensor);
    dl_tensor *blocks;
    dl_call inner = *call;
    dl_buffer wide = {0};

    if (how->worked == how->dtype && how->op != DL_PREMUL_SUM && how->op != DL_AVG) {
        return run_by_function(self, how, &inner);
    }
    DL_TRY(dl_buffer_reserve(&wide,
                             (size_t)self->size * sizeof *blocks + 2 * (total + size)));
    blocks = (dl_tensor *)(void *)wide.data;
    char *data = (char *)(blocks + self->size);
    char *result = data + total;
    load_blocks(self, call, how, data, result, blocks);
    inner.inputs = blocks;
    inner.tensor = widened(how, result, call->tensor.count);
    dl_status status = run_by_function(self, how, &inner);
    if (status == DL_OK) {
        store_array(how, &call->tensor, result, self->size);
    }
    dl_buffer_fini(&wide);
    return status;
}

dl_status
dl_mpi_reduce_scatter(dl_mpi_backend *self, const dl_call *call)
{
    reduction how = reduction_of(self, call);
    size_t total = 0;

    for (int rank = 0; rank < self->size; rank++) {
        total += size_of(&how, &call->inputs[rank]);
    }
    return total <= dl_mpi_room(self, DL_MPI_ALL)
               ? reduce_scatter_along(self, call, &how, total)
               : reduce_scatter_by_function(self, call, &how, total);
}
