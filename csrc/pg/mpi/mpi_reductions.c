/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions.  Small arrays travel along when the ranks meet, and are reduced in the
 * order of ranks; others are reduced by MPI. */
#include <string.h>

#include "pg/mpi/mpi_plain.h"
#include "pg/mpi/mpi_shares.h"
#include "tensor/copy.h"

/* Reduces what all ranks brought along, from `offset` bytes on, in the order of
 * ranks. */
static void
fold(dl_mpi_backend *self, const dl_mpi_reduction *how, void *target, size_t offset,
     size_t count)
{
    dl_reduce_fn kernel = dl_reduce_kernel(how->op, how->worked);

    for (int rank = 0; rank < self->size && count > 0; rank++) {
        const char *theirs = dl_mpi_meeting_array(&self->meeting, rank);
        if (rank == 0) {
            memcpy(target, theirs + offset, count * how->item_size);
        } else {
            kernel(target, target, theirs + offset, count);
        }
    }
}

static dl_status
meet(dl_mpi_backend *self, const dl_op_context *op, const void *data, size_t size)
{
    return dl_mpi_meet_with(self, op, (dl_bytes){data, size}, 0);
}

static dl_status
all_reduce_pieces(dl_mpi_backend *self, const dl_op_context *op,
                  const dl_mpi_reduction *how, void *data, size_t count)
{
    size_t most = self->comm->piece / how->item_size;

    for (size_t at = 0; at < count; at += most) {
        size_t piece = count - at < most ? count - at : most;
        dl_mpi_part part = {(char *)data + at * how->item_size, (int)piece, how->type};
        int result = self->mpi->allreduce(self->mpi->in_place, &part, how->mpi_op,
                                          self->comm->handle);
        DL_TRY(dl_mpi_called(self, op, result, "MPI_Allreduce"));
    }
    return DL_OK;
}

dl_status
dl_mpi_all_reduce(dl_backend *backend, const dl_op_context *op,
                  const dl_all_reduce_args *args)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    const dl_tensor *tensor = &args->tensor;
    dl_mpi_reduction how =
        dl_mpi_reduction_of(self, args->op, args->factor, tensor->dtype);
    size_t size = tensor->count * how.item_size;
    void *data = tensor->data;

    if (!dl_mpi_reduction_is_plain(&how, tensor)) {
        DL_TRY(dl_mpi_reduction_reserve(&self->staging, &how, tensor->count));
        data = self->staging.data;
    }
    dl_mpi_reduction_load(&how, tensor, data, (char *)data + size);
    if (size <= dl_mpi_meeting_room(&self->meeting)) {
        DL_TRY(meet(self, op, data, size));
        fold(self, &how, data, 0, tensor->count);
    } else {
        dl_mpi_span all = {data, size};
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(dl_mpi_shares_pay(self, &how, size)
                   ? dl_mpi_all_reduce_shares(self, &how, &all)
                   : all_reduce_pieces(self, op, &how, data, tensor->count));
    }
    dl_mpi_reduction_store(&how, tensor, data, self->size);
    return DL_OK;
}

/* Sets `*input` to what MPI_Reduce reads of a piece.  On a root other than 0 that is a
 * copy: MPICH 4.0 crashes in place there. */
static dl_status
piece_input(dl_mpi_backend *self, const dl_mpi_span *piece, int root,
            const void **input)
{
    *input = self->rank == root ? self->mpi->in_place : piece->data;
    if (self->rank == root && root != 0) {
        dl_buffer_clear(&self->own);
        DL_TRY(dl_buffer_reserve(&self->own, piece->size));
        dl_copy(self->own.data, piece->data, piece->size);
        *input = self->own.data;
    }
    return DL_OK;
}

static dl_status
reduce_pieces(dl_mpi_backend *self, const dl_op_context *op,
              const dl_mpi_reduction *how, const dl_mpi_span *data, int root)
{
    for (size_t at = 0; at < data->size; at += self->comm->piece) {
        size_t left = data->size - at;
        dl_mpi_span piece = {data->data + at,
                             left < self->comm->piece ? left : self->comm->piece};
        dl_mpi_part part = {self->rank == root ? piece.data : NULL,
                            (int)(piece.size / how->item_size), how->type};
        const void *input;
        DL_TRY(piece_input(self, &piece, root, &input));
        int result =
            self->mpi->reduce(input, &part, how->mpi_op, root, self->comm->handle);
        DL_TRY(dl_mpi_called(self, op, result, "MPI_Reduce"));
    }
    return DL_OK;
}

/* The arrays of ranks other than the root stay as they are. */
dl_status
dl_mpi_reduce(dl_backend *backend, const dl_op_context *op, const dl_reduce_args *args)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    const dl_tensor *tensor = &args->tensor;
    dl_mpi_reduction how =
        dl_mpi_reduction_of(self, args->op, args->factor, tensor->dtype);
    bool is_root = self->rank == args->root;
    dl_mpi_span data = {tensor->data, tensor->count * how.item_size};

    if (!dl_mpi_reduction_is_plain(&how, tensor)
        || (!is_root && args->op == DL_PREMUL_SUM)) {
        DL_TRY(dl_mpi_reduction_reserve(&self->staging, &how, tensor->count));
        data.data = (char *)self->staging.data;
    }
    dl_mpi_reduction_load(&how, tensor, data.data, data.data + data.size);
    if (data.size <= dl_mpi_meeting_room(&self->meeting)) {
        DL_TRY(dl_mpi_tree_up(&self->meeting, op, args->root, dl_mpi_bytes_of(&data)));
        if (is_root) {
            fold(self, &how, data.data, 0, tensor->count);
        }
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(dl_mpi_shares_pay(self, &how, data.size)
                   ? dl_mpi_reduce_shares(self, &how, &data, args->root)
                   : reduce_pieces(self, op, &how, &data, args->root));
    }
    if (is_root) {
        dl_mpi_reduction_store(&how, tensor, data.data, self->size);
    }
    return DL_OK;
}

/* Chooses where this rank's result is computed: not in an input, which
 * MPI may still read. */
static dl_status
place_output(dl_mpi_backend *self, const dl_mpi_reduction *how, const dl_tensor *output,
             void **data)
{
    const char *begin = self->inputs.spans[0].data;
    const char *own = output->data;
    bool is_input = own >= begin && own < begin + self->inputs.size;

    *data = output->data;
    if (is_input || !dl_mpi_reduction_is_plain(how, output)) {
        DL_TRY(dl_mpi_reduction_reserve(&self->outputs.copy, how, output->count));
        *data = self->outputs.copy.data;
    }
    return DL_OK;
}

/* Makes all blocks contiguous and describes them in `self->inputs`, with their
 * sizes after widening. */
static dl_status
place_inputs(dl_mpi_backend *self, const dl_mpi_reduction *how,
             const dl_reduce_scatter_args *args)
{
    dl_mpi_spans *inputs = &self->inputs;
    bool is_exact = how->worked == how->dtype && args->op != DL_PREMUL_SUM;
    size_t widening = how->item_size / dl_dtype_size(how->dtype);
    size_t at = 0, most = 0;

    DL_TRY(dl_mpi_spans_place(inputs, args->inputs, DL_MPI_CONTIGUOUS));
    if (is_exact && (uintptr_t)inputs->spans[0].data % how->item_size == 0) {
        dl_mpi_spans_read(inputs, args->inputs);
        return DL_OK;
    }
    for (int rank = 0; rank < self->size; rank++) {
        most = inputs->spans[rank].size > most ? inputs->spans[rank].size : most;
    }
    dl_buffer_clear(&self->staging);
    DL_TRY(dl_buffer_reserve(&self->staging, inputs->size * widening + most));
    char *shorts = (char *)self->staging.data + inputs->size * widening;
    for (int rank = 0; rank < self->size; rank++) {
        dl_mpi_span *span = &inputs->spans[rank];
        span->data = (char *)self->staging.data + at;
        span->size *= widening;
        at += span->size;
        dl_mpi_reduction_load(how, &args->inputs[rank], span->data, shorts);
    }
    inputs->size = at;
    return DL_OK;
}

static dl_status
reduce_scatter_at_once(dl_mpi_backend *self, const dl_op_context *op,
                       const dl_mpi_reduction *how, void *data)
{
    const dl_mpi_spans *inputs = &self->inputs;

    for (int rank = 0; rank < self->size; rank++) {
        self->counts[rank] = (int)(inputs->spans[rank].size / how->item_size);
    }
    if (inputs->is_even) {
        dl_mpi_part part = {data, self->counts[0], how->type};
        int result = self->mpi->reduce_scatter_block(inputs->spans[0].data, &part,
                                                     how->mpi_op, self->comm->handle);
        return dl_mpi_called(self, op, result, "MPI_Reduce_scatter_block");
    }
    dl_mpi_parts parts = {data, self->counts, NULL, how->type};
    int result = self->mpi->reduce_scatter(inputs->spans[0].data, &parts, how->mpi_op,
                                           self->comm->handle);
    return dl_mpi_called(self, op, result, "MPI_Reduce_scatter");
}

/* Reduces each block to its rank, where all blocks together exceed one call of MPI. */
static dl_status
reduce_each(dl_mpi_backend *self, const dl_op_context *op, const dl_mpi_reduction *how,
            void *data)
{
    for (int rank = 0; rank < self->size; rank++) {
        dl_mpi_span span = self->inputs.spans[rank];
        if (rank == self->rank && span.size > 0) {
            memcpy(data, span.data, span.size);
            span.data = data;
        }
        DL_TRY(reduce_pieces(self, op, how, &span, rank));
    }
    return DL_OK;
}

dl_status
dl_mpi_reduce_scatter(dl_backend *backend, const dl_op_context *op,
                      const dl_reduce_scatter_args *args)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    dl_mpi_reduction how =
        dl_mpi_reduction_of(self, args->op, args->factor, args->output.dtype);
    dl_mpi_spans *inputs = &self->inputs;
    void *data;

    DL_TRY(place_inputs(self, &how, args));
    DL_TRY(place_output(self, &how, &args->output, &data));
    if (inputs->size <= dl_mpi_meeting_room(&self->meeting)) {
        const dl_mpi_span *own = &inputs->spans[self->rank];
        DL_TRY(meet(self, op, inputs->spans[0].data, inputs->size));
        fold(self, &how, data, (size_t)(own->data - inputs->spans[0].data),
             args->output.count);
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(inputs->size > self->comm->piece
                   ? reduce_each(self, op, &how, data)
                   : reduce_scatter_at_once(self, op, &how, data));
    }
    dl_mpi_reduction_store(&how, &args->output, data, self->size);
    return DL_OK;
}
