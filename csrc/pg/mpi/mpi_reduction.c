/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_reduction.h"

#include "tensor/strided.h"

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

/* Chooses an operation of our own only where MPI's differs or is wrong, as a library
 * may compute its own ones in hardware. */
static dl_mpi_handle
choose_op(const dl_mpi_world *world, dl_reduce_op op, dl_dtype worked)
{
    bool is_order = op == DL_MIN || op == DL_MAX;

    if (worked == DL_BOOL) {
        return logical_op_of(world->mpi, op);
    }
    if (is_order && worked == DL_FLOAT32) {
        return op == DL_MIN ? world->min_float32 : world->max_float32;
    }
    if (is_order && worked == DL_FLOAT64) {
        return op == DL_MIN ? world->min_float64 : world->max_float64;
    }
    if (is_order && worked == DL_UINT64) {
        return op == DL_MIN ? world->min_uint64 : world->max_uint64;
    }
    return op_of(world->mpi, op);
}

dl_mpi_reduction
dl_mpi_reduction_of(const dl_mpi_backend *self, dl_reduce_op op, double factor,
                    dl_dtype dtype)
{
    dl_dtype worked = dl_reduce_dtype(dtype);
    dl_mpi_handle chosen = choose_op(self->comm->world, op, worked);
    bool is_ours = worked != DL_BOOL && chosen != op_of(self->mpi, op);

    return (dl_mpi_reduction){
        .op = op,
        .factor = factor,
        .dtype = dtype,
        .worked = worked,
        .item_size = dl_dtype_size(worked),
        .type = type_of(self->mpi, worked),
        .mpi_op = chosen,
        .is_ours = is_ours,
    };
}

bool
dl_mpi_reduction_is_plain(const dl_mpi_reduction *how, const dl_tensor *tensor)
{
    return how->worked == how->dtype && tensor->is_contiguous
           && (uintptr_t)tensor->data % how->item_size == 0;
}

void
dl_mpi_reduction_load(const dl_mpi_reduction *how, const dl_tensor *tensor,
                      void *target, void *shorts)
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

void
dl_mpi_reduction_store(const dl_mpi_reduction *how, const dl_tensor *tensor,
                       void *source, int divisor)
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

dl_status
dl_mpi_reduction_reserve(dl_buffer *buffer, const dl_mpi_reduction *how, size_t count)
{
    dl_buffer_clear(buffer);
    return dl_buffer_reserve(buffer,
                             count * (how->item_size + dl_dtype_size(how->dtype)));
}
