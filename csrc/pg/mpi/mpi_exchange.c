/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Barrier, broadcast and all_to_all. */
#include "base/interrupt.h"
#include "pg/mpi/mpi_plain.h"

dl_status
dl_mpi_barrier(dl_backend *backend, const dl_op_context *op)
{
    return dl_mpi_meet_with(dl_mpi_self(backend), op, (dl_bytes){NULL, 0}, 0);
}

static dl_status
broadcast_pieces(dl_mpi_backend *self, const dl_op_context *op, const dl_mpi_span *data,
                 int root)
{
    for (size_t at = 0; at < data->size; at += self->comm->piece) {
        size_t left = data->size - at;
        dl_mpi_span piece = {data->data + at,
                             left < self->comm->piece ? left : self->comm->piece};
        dl_mpi_part part = dl_mpi_part_of(self, &piece);
        DL_TRY(dl_mpi_called(
            self, op, self->mpi->bcast(&part, root, self->comm->handle), "MPI_Bcast"));
    }
    return DL_OK;
}

dl_status
dl_mpi_broadcast(dl_backend *backend, const dl_op_context *op,
                 const dl_broadcast_args *args)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    bool is_root = self->rank == args->root;
    dl_mpi_span data;

    DL_TRY(dl_mpi_flatten(self, &args->tensor, is_root, &data));
    if (data.size <= dl_mpi_meeting_room_for_one()) {
        DL_TRY(
            dl_mpi_tree_down(&self->meeting, op, args->root, dl_mpi_bytes_of(&data)));
        if (!is_root) {
            dl_mpi_take(self, args->root, 0, &data);
        }
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(broadcast_pieces(self, op, &data, args->root));
    }
    if (!is_root) {
        dl_mpi_unflatten(&args->tensor, &data);
    }
    return DL_OK;
}

static dl_status
all_to_all_call(dl_mpi_backend *self, const dl_op_context *op)
{
    dl_mpi_span *inputs = self->inputs.spans, *outputs = self->outputs.spans;

    if ((self->meeting.flags & DL_MPI_LARGE) != 0) {
        return dl_mpi_direct(self, inputs, outputs);
    }
    if ((self->meeting.flags & DL_MPI_UNEVEN) != 0) {
        dl_mpi_parts input = dl_mpi_parts_of(self, &self->inputs, self->counts);
        dl_mpi_parts output =
            dl_mpi_parts_of(self, &self->outputs, self->counts + 2 * self->size);
        int result = self->mpi->alltoallv(&input, &output, self->comm->handle);
        return dl_mpi_called(self, op, result, "MPI_Alltoallv");
    }
    dl_mpi_part input = dl_mpi_part_of(self, &inputs[0]),
                output = dl_mpi_part_of(self, &outputs[0]);
    int result = self->mpi->alltoall(&input, &output, self->comm->handle);
    return dl_mpi_called(self, op, result, "MPI_Alltoall");
}

/* A rank knows only the sizes of its own blocks; the meeting combines the
 * flags of all ranks. */
static uint32_t
flags_of(const dl_mpi_backend *self)
{
    const dl_mpi_spans *inputs = &self->inputs, *outputs = &self->outputs;
    bool is_even = inputs->is_even && outputs->is_even
                   && inputs->spans[0].size == outputs->spans[0].size;
    bool is_large =
        inputs->size > self->comm->piece || outputs->size > self->comm->piece;

    return (is_even ? 0u : DL_MPI_UNEVEN) | (is_large ? DL_MPI_LARGE : 0u)
           | (dl_mpi_fits(self, inputs->size) ? 0u : DL_MPI_HEAVY);
}

/* MPI forbids memory that is both its input and its output. */
static bool
shares_own_block(const dl_mpi_backend *self, const dl_all_to_all_args *args)
{
    return args->inputs[self->rank].data == args->outputs[self->rank].data;
}

dl_status
dl_mpi_all_to_all(dl_backend *backend, const dl_op_context *op,
                  const dl_all_to_all_args *args)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    bool is_shared = shares_own_block(self, args);

    DL_TRY(dl_mpi_spans_place(&self->inputs, args->inputs,
                              is_shared ? DL_MPI_COPIED : DL_MPI_CONTIGUOUS));
    DL_TRY(dl_mpi_spans_place(&self->outputs, args->outputs, DL_MPI_CONTIGUOUS));
    dl_mpi_spans_read(&self->inputs, args->inputs);
    uint32_t flags = flags_of(self);
    size_t carried = (flags & DL_MPI_HEAVY) == 0 ? self->inputs.size : 0;
    dl_bytes brought = {(const uint8_t *)self->inputs.spans[0].data, carried};
    DL_TRY(dl_mpi_meet_with(self, op, brought, flags));
    if ((self->meeting.flags & (DL_MPI_HEAVY | DL_MPI_UNEVEN)) == 0) {
        for (int rank = 0; rank < self->size; rank++) {
            const dl_mpi_span *block = &self->outputs.spans[rank];
            dl_mpi_take(self, rank, (size_t)self->rank * block->size, block);
        }
    } else {
        DL_TRY(dl_mpi_meeting_commit(&self->meeting, op));
        dl_blocking_begin();
        DL_TRY(all_to_all_call(self, op));
    }
    dl_mpi_spans_write(&self->outputs, args->outputs);
    return DL_OK;
}
