/* SPDX-License-Identifier: BSD-3-Clause
 *
 * all_reduce by MPI, as this library promises it: floats shorter than 32 bits are widened
 * to float32 and rounded once, at the end; operations on bool are logical; AVG is a sum and
 * a division.  What MPI does not reduce alike is left to the CPU backend: MIN and MAX of
 * floats, which propagate NaN, those of unsigned integers, of which MPICH 4.0 takes the
 * largest for negative, and sums of integers of 8 and 16 bits, which Open MPI 4.1
 * saturates. */
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

/* Copies the array to `target`: contiguous, multiplied by the factor of PREMUL_SUM, and
 * widened; `shorts` has room for it unwidened. */
static void
load_array(const reduction *how, const dl_tensor *tensor, void *target, void *shorts)
{
    bool is_wide = how->worked == how->dtype;
    void *row = is_wide ? target : shorts;

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

/* Copies a result to the array, for AVG after the division; `shorts` has room for it
 * unwidened. */
static void
store_array(const reduction *how, const dl_tensor *tensor, void *source, void *shorts,
            int divisor)
{
    void *row = source;

    if (how->op == DL_AVG) {
        dl_reduce_divide(source, how->worked, tensor->count, divisor);
    }
    if (how->worked != how->dtype) {
        row = shorts;
        dl_reduce_narrow(row, how->dtype, source, tensor->count);
    }
    if (row != tensor->data) {
        dl_strided_scatter_part(tensor, row, 0, dl_tensor_size(tensor));
    }
}

/* Starts a reduction of `size` bytes in place, in pieces that an int counts. */
static dl_status
start_pieces(dl_mpi_backend *self, const reduction *how, char *data, size_t size)
{
    for (size_t at = 0; at < size; at += self->piece) {
        size_t bytes = size - at < self->piece ? size - at : self->piece;
        dl_mpi_handle request = 0;
        int result = self->mpi->iallreduce(self->mpi->abi.in_place, data + at,
                                           (int)(bytes / how->item_size), how->type,
                                           how->mpi_op, self->comm, &request);
        DL_TRY(dl_mpi_add(self, result, request, "MPI_Iallreduce"));
    }
    return DL_OK;
}

/* Reduces in the array itself if it is contiguous, aligned and not widened; otherwise in
 * memory with room behind it for it unwidened. */
dl_status
dl_mpi_all_reduce(dl_mpi_backend *self, const dl_call *call)
{
    const dl_tensor *tensor = &call->tensor;
    reduction how = reduction_of(self, call);
    size_t size = tensor->count * how.item_size;
    bool is_array = how.worked == how.dtype && dl_tensor_is_plain(tensor);

    if (how.mpi_op == 0) {
        return DL_UNSUPPORTED;
    }
    char *data =
        is_array ? tensor->data : dl_mpi_stage(self, size + dl_tensor_size(tensor));
    DL_TRY(data == NULL ? dl_fail_no_memory() : DL_OK);
    DL_TRY(dl_mpi_rendezvous(self));
    self->uses_arrays = is_array;
    load_array(&how, tensor, data, data + size);
    DL_TRY(start_pieces(self, &how, data, size));
    DL_TRY(dl_mpi_finish(self));
    store_array(&how, tensor, data, data + size, self->size);
    return DL_OK;
}
