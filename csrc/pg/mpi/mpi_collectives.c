/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives that move bytes, as MPI's datatypes would add nothing. */
#include <string.h>

#include "pg/mpi/mpi_state.h"
#include "tensor/strided.h"

static void
read_array(void *target, const dl_tensor *array)
{
    if (array->count > 0) {
        dl_strided_gather_part(target, array, 0, dl_tensor_size(array));
    }
}

static void
write_array(const dl_tensor *array, const void *source)
{
    if (array->count > 0 && array->data != source) {
        dl_strided_scatter_part(array, source, 0, dl_tensor_size(array));
    }
}

/* Data as MPI has them: the blocks of the caller, which then are contiguous and one
 * behind the other, or memory for them. */
typedef struct span {
    char *data;
    size_t size;
    bool is_array;
} span;

static bool
are_one(const dl_tensor *blocks, int count)
{
    const char *next = blocks[0].data;

    for (int i = 0; i < count; i++) {
        if (!blocks[i].is_contiguous || blocks[i].data != next) {
            return false;
        }
        next += dl_tensor_size(&blocks[i]);
    }
    return true;
}

/* Places `count` blocks of equal size. */
static dl_status
place(dl_mpi_backend *self, const dl_tensor *blocks, int count, span *made)
{
    made->size = dl_tensor_size(&blocks[0]) * (size_t)count;
    made->is_array = made->size > DL_MPI_STAGED && are_one(blocks, count);
    made->data = made->is_array ? blocks[0].data : dl_mpi_stage(self, made->size);
    return made->data == NULL ? dl_fail_no_memory() : DL_OK;
}

static void
read_blocks(const span *target, const dl_tensor *blocks, int count)
{
    for (int i = 0; i < count && !target->is_array; i++) {
        read_array(target->data + (size_t)i * dl_tensor_size(blocks), &blocks[i]);
    }
}

static void
write_blocks(const dl_tensor *blocks, const span *source, int count)
{
    for (int i = 0; i < count && !source->is_array; i++) {
        write_array(&blocks[i], source->data + (size_t)i * dl_tensor_size(blocks));
    }
}

dl_status
dl_mpi_barrier(dl_mpi_backend *self, const dl_call *call)
{
    (void)call;
    DL_TRY(dl_mpi_begin(self, DL_MPI_ALL, 0, 0));
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    return dl_mpi_finish(self);
}

static dl_status
broadcast_along(dl_mpi_backend *self, const dl_call *call, size_t size)
{
    bool is_root = self->rank == call->root;

    DL_TRY(dl_mpi_begin(self, DL_MPI_DOWN, call->root, size));
    if (is_root) {
        read_array(dl_mpi_block(self, call->root), &call->tensor);
    }
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    DL_TRY(dl_mpi_finish(self));
    if (!is_root) {
        write_array(&call->tensor, dl_mpi_block(self, call->root));
    }
    return DL_OK;
}

dl_status
dl_mpi_broadcast(dl_mpi_backend *self, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    bool is_root = self->rank == call->root;
    dl_mpi_handle request = 0, type;
    dl_mpi_part part;
    span data;

    if (size <= dl_mpi_room(self, DL_MPI_DOWN)) {
        return broadcast_along(self, call, size);
    }
    DL_TRY(dl_mpi_begin(self, DL_MPI_DOWN, call->root, 0));
    DL_TRY(place(self, &call->tensor, 1, &data));
    if (is_root) {
        read_blocks(&data, &call->tensor, 1);
    }
    DL_TRY(dl_mpi_send_cards(self, size, data.is_array));
    DL_TRY(dl_mpi_part_of(self->comm, data.data, size, &part, &type));
    int result = self->mpi->ibcast(&part, call->root, self->comm->handle, &request);
    dl_mpi_type_free(self->comm, type);
    DL_TRY(dl_mpi_add(self, result, request, "MPI_Ibcast", -1));
    DL_TRY(dl_mpi_finish(self));
    if (!is_root) {
        write_blocks(&call->tensor, &data, 1);
    }
    return DL_OK;
}

static bool
are_even(const dl_tensor *blocks, int count)
{
    for (int i = 1; i < count; i++) {
        if (blocks[i].count != blocks[0].count) {
            return false;
        }
    }
    return true;
}

static dl_status
all_gather_along(dl_mpi_backend *self, const dl_call *call, size_t size)
{
    DL_TRY(dl_mpi_begin(self, DL_MPI_ALL, 0, size));
    read_array(dl_mpi_block(self, self->rank), &call->tensor);
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    DL_TRY(dl_mpi_finish(self));
    for (int rank = 0; rank < self->size; rank++) {
        write_array(&call->outputs[rank], dl_mpi_block(self, rank));
    }
    return DL_OK;
}

static dl_status
all_gather_even(dl_mpi_backend *self, const dl_call *call, size_t size)
{
    dl_mpi_handle request = 0, type;
    dl_mpi_part part;
    span all;

    DL_TRY(dl_mpi_begin(self, DL_MPI_ALL, 0, 0));
    DL_TRY(place(self, call->outputs, self->size, &all));
    DL_TRY(dl_mpi_send_cards(self, all.size, all.is_array));
    char *own = all.data + (size_t)self->rank * size;
    if (own != (char *)call->tensor.data) {
        read_array(own, &call->tensor);
    }
    DL_TRY(dl_mpi_part_of(self->comm, all.data, size, &part, &type));
    int result =
        self->mpi->iallgather(self->mpi->in_place, &part, self->comm->handle, &request);
    dl_mpi_type_free(self->comm, type);
    DL_TRY(dl_mpi_add(self, result, request, "MPI_Iallgather", -1));
    DL_TRY(dl_mpi_finish(self));
    write_blocks(call->outputs, &all, self->size);
    return DL_OK;
}

dl_status
dl_mpi_all_gather(dl_mpi_backend *self, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);

    if (!are_even(call->outputs, self->size)) {
        return dl_mpi_exchange_blocks(self, &(dl_mpi_blocks){&call->tensor, true, -1},
                                      &(dl_mpi_blocks){call->outputs, false, -1});
    }
    return size <= dl_mpi_room(self, DL_MPI_ALL) ? all_gather_along(self, call, size)
                                                 : all_gather_even(self, call, size);
}

static dl_status
gather_along(dl_mpi_backend *self, const dl_call *call, size_t size)
{
    DL_TRY(dl_mpi_begin(self, DL_MPI_UP, call->root, size));
    read_array(dl_mpi_block(self, self->rank), &call->tensor);
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    DL_TRY(dl_mpi_finish(self));
    for (int rank = 0; rank < self->size && self->rank == call->root; rank++) {
        write_array(&call->outputs[rank], dl_mpi_block(self, rank));
    }
    return DL_OK;
}

static dl_status
gather_even(dl_mpi_backend *self, const dl_call *call, size_t size)
{
    bool is_root = self->rank == call->root;
    dl_mpi_handle request = 0, type;
    dl_mpi_part part;
    span data;

    DL_TRY(dl_mpi_begin(self, DL_MPI_UP, call->root, 0));
    DL_TRY(is_root ? place(self, call->outputs, self->size, &data)
                   : place(self, &call->tensor, 1, &data));
    DL_TRY(dl_mpi_send_cards(self, data.size, data.is_array));
    char *own = data.data + (is_root ? (size_t)self->rank * size : 0);
    if (own != (char *)call->tensor.data) {
        read_array(own, &call->tensor);
    }
    DL_TRY(dl_mpi_part_of(self->comm, data.data, size, &part, &type));
    int result = self->mpi->igather(is_root ? self->mpi->in_place : own, &part,
                                    call->root, self->comm->handle, &request);
    dl_mpi_type_free(self->comm, type);
    DL_TRY(dl_mpi_add(self, result, request, "MPI_Igather", -1));
    DL_TRY(dl_mpi_finish(self));
    if (is_root) {
        write_blocks(call->outputs, &data, self->size);
    }
    return DL_OK;
}

/* Only the root knows sizes that differ. */
static dl_status
gather_uneven(dl_mpi_backend *self, const dl_call *call)
{
    dl_mpi_blocks all = {call->outputs, false, -1}, none = {NULL, false, -1};

    if (self->rank != call->root) {
        return dl_mpi_exchange_blocks(
            self, &(dl_mpi_blocks){&call->tensor, true, call->root}, &none);
    }
    DL_TRY(dl_mpi_exchange_blocks(self, &none, &all));
    const dl_tensor *own = &call->outputs[self->rank];
    if (own->data != call->tensor.data && own->count > 0) {
        dl_strided_copy_part(own, &call->tensor, 0, dl_tensor_size(own));
    }
    return DL_OK;
}

dl_status
dl_mpi_gather(dl_mpi_backend *self, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);

    if (call->is_uneven) {
        return gather_uneven(self, call);
    }
    return size <= dl_mpi_room(self, DL_MPI_UP) ? gather_along(self, call, size)
                                                : gather_even(self, call, size);
}

/* Copies the root's own block, unless it is left where it is. */
static void
keep_own_block(const dl_mpi_backend *self, const dl_call *call)
{
    bool is_root = self->rank == call->root;

    if (is_root && call->tensor.count > 0
        && call->tensor.data != call->inputs[self->rank].data) {
        dl_strided_copy_part(&call->tensor, &call->inputs[self->rank], 0,
                             dl_tensor_size(&call->tensor));
    }
}

static dl_status
scatter_along(dl_mpi_backend *self, const dl_call *call, size_t size)
{
    bool is_root = self->rank == call->root;

    DL_TRY(dl_mpi_begin(self, DL_MPI_SPREAD, call->root, size));
    for (int rank = 0; rank < self->size && is_root; rank++) {
        read_array(dl_mpi_block(self, rank), &call->inputs[rank]);
    }
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    DL_TRY(dl_mpi_finish(self));
    write_array(&call->tensor, dl_mpi_block(self, self->rank));
    return DL_OK;
}

static dl_status
scatter_even(dl_mpi_backend *self, const dl_call *call, size_t size)
{
    bool is_root = self->rank == call->root;
    dl_mpi_handle request = 0, type;
    dl_mpi_part part;
    span data;

    DL_TRY(dl_mpi_begin(self, DL_MPI_SPREAD, call->root, 0));
    DL_TRY(is_root ? place(self, call->inputs, self->size, &data)
                   : place(self, &call->tensor, 1, &data));
    if (is_root) {
        read_blocks(&data, call->inputs, self->size);
    }
    DL_TRY(dl_mpi_send_cards(self, data.size, data.is_array));
    DL_TRY(dl_mpi_part_of(self->comm, is_root ? self->mpi->in_place : data.data, size,
                          &part, &type));
    int result =
        self->mpi->iscatter(data.data, &part, call->root, self->comm->handle, &request);
    dl_mpi_type_free(self->comm, type);
    DL_TRY(dl_mpi_add(self, result, request, "MPI_Iscatter", -1));
    DL_TRY(dl_mpi_finish(self));
    if (!is_root) {
        write_blocks(&call->tensor, &data, 1);
    }
    keep_own_block(self, call);
    return DL_OK;
}

dl_status
dl_mpi_scatter(dl_mpi_backend *self, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    dl_mpi_blocks none = {NULL, false, -1};

    if (!call->is_uneven) {
        return size <= dl_mpi_room(self, DL_MPI_SPREAD)
                   ? scatter_along(self, call, size)
                   : scatter_even(self, call, size);
    }
    if (self->rank != call->root) {
        return dl_mpi_exchange_blocks(
            self, &none, &(dl_mpi_blocks){&call->tensor, true, call->root});
    }
    DL_TRY(
        dl_mpi_exchange_blocks(self, &(dl_mpi_blocks){call->inputs, false, -1}, &none));
    keep_own_block(self, call);
    return DL_OK;
}

dl_status
dl_mpi_all_to_all(dl_mpi_backend *self, const dl_call *call)
{
    return dl_mpi_exchange_blocks(self, &(dl_mpi_blocks){call->inputs, false, -1},
                                  &(dl_mpi_blocks){call->outputs, false, -1});
}
