/* SPDX-License-Identifier: BSD-3-Clause
 *
 * all_gather, gather and scatter.  All of them move bytes, as MPI's datatypes would add
 * nothing.  Small blocks travel with the cards when the ranks meet; sizes that MPI's
 * counts can hold go through its collectives; the rest goes as messages. */
#include <string.h>

#include "pg/mpi/mpi_plain.h"

/* Sends this rank's block to every other rank as messages, and receives theirs. */
static dl_status
all_gather_direct(dl_mpi_backend *self, const dl_mpi_span *own)
{
    for (int rank = 0; rank < self->size; rank++) {
        self->inputs.spans[rank] = *own;
    }
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}

static dl_status
all_gather_call(dl_mpi_backend *self, const dl_op_context *op, const dl_mpi_span *own)
{
    const dl_mpi_spans *outputs = &self->outputs;
    dl_mpi_span block = {outputs->spans[0].data, outputs->spans[0].size};
    dl_mpi_part input = dl_mpi_part_of(self, own),
                output = dl_mpi_part_of(self, &block);
    int result;

    if (own->data == outputs->spans[self->rank].data) {
        input.data = self->mpi->in_place;
    }
    if (outputs->is_even) {
        result = self->mpi->allgather(&input, &output, self->comm->handle);
        return dl_mpi_called(self, op, result, "MPI_Allgather");
    }
    dl_mpi_parts parts = dl_mpi_parts_of(self, outputs, self->counts);
    result = self->mpi->allgatherv(&input, &parts, self->comm->handle);
    return dl_mpi_called(self, op, result, "MPI_Allgatherv");
}

static size_t
largest(const dl_mpi_spans *spans)
{
    size_t most = 0;

    for (int rank = 0; rank < spans->count; rank++) {
        most = spans->spans[rank].size > most ? spans->spans[rank].size : most;
    }
    return most;
}

/* Every rank knows all sizes, so all choose the same path. */
dl_status
dl_mpi_all_gather(dl_backend *backend, const dl_op_context *op,
                  const dl_all_gather_args *args)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    dl_mpi_spans *outputs = &self->outputs;
    dl_mpi_span own;

    dl_mpi_spans_measure(outputs, args->outputs);
    bool is_small = dl_mpi_fits(self, largest(outputs));
    bool is_large = outputs->size > self->comm->piece;
    DL_TRY(
        dl_mpi_spans_place(outputs, args->outputs,
                           is_small || is_large ? DL_MPI_ANYWHERE : DL_MPI_CONTIGUOUS));
    DL_TRY(dl_mpi_flatten(self, &args->input, true, &own));
    if (is_small) {
        DL_TRY(dl_mpi_meet_with(self, op, dl_mpi_bytes_of(&own), 0));
        for (int rank = 0; rank < self->size; rank++) {
            dl_mpi_take(self, rank, 0, &outputs->spans[rank]);
        }
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(is_large ? all_gather_direct(self, &own)
                        : all_gather_call(self, op, &own));
    }
    dl_mpi_spans_write(outputs, args->outputs);
    return DL_OK;
}

/* Makes all blocks empty, for a caller that then sets the block of one rank. */
static void
clear(const dl_mpi_backend *self, dl_mpi_spans *spans)
{
    memset(spans->spans, 0, (size_t)self->size * sizeof *spans->spans);
}

static dl_status
gather_direct(dl_mpi_backend *self, const dl_mpi_span *own, int root)
{
    clear(self, &self->inputs);
    if (self->rank != root) {
        clear(self, &self->outputs);
    }
    self->inputs.spans[root] = *own;
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}

static dl_status
gather_call(dl_mpi_backend *self, const dl_op_context *op, const dl_mpi_span *own,
            int root)
{
    dl_mpi_part input = dl_mpi_part_of(self, own), output = input;

    output.data = NULL;
    if (self->rank == root) {
        output.data = self->outputs.spans[0].data;
        if (own->data == self->outputs.spans[root].data) {
            input.data = self->mpi->in_place;
        }
    }
    int result = self->mpi->gather(&input, &output, root, self->comm->handle);
    return dl_mpi_called(self, op, result, "MPI_Gather");
}

static void
take_gathered(dl_mpi_backend *self, const dl_mpi_span *own)
{
    for (int rank = 0; rank < self->size; rank++) {
        const dl_mpi_span *span = &self->outputs.spans[rank];
        if (rank != self->rank) {
            dl_mpi_take(self, rank, 0, span);
        } else if (span->size > 0 && span->data != own->data) {
            memcpy(span->data, own->data, span->size);
        }
    }
}

/* The path depends only on what all ranks know: whether blocks differ in size, and if
 * not, the size of a block. */
dl_status
dl_mpi_gather(dl_backend *backend, const dl_op_context *op, const dl_gather_args *args)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    bool is_root = self->rank == args->root;
    size_t size = dl_tensor_size(&args->input);
    bool is_small = !args->is_uneven && dl_mpi_fits(self, size);
    bool is_direct = args->is_uneven || size > self->comm->piece;
    dl_mpi_span own;

    if (is_root) {
        DL_TRY(dl_mpi_spans_place(&self->outputs, args->outputs,
                                  is_small || is_direct ? DL_MPI_ANYWHERE
                                                        : DL_MPI_CONTIGUOUS));
    }
    DL_TRY(dl_mpi_flatten(self, &args->input, true, &own));
    if (is_small) {
        /* The root's own block need not travel. */
        dl_bytes brought = is_root ? (dl_bytes){NULL, 0} : dl_mpi_bytes_of(&own);
        DL_TRY(dl_mpi_tree_up(&self->meeting, op, args->root, brought));
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(is_direct ? gather_direct(self, &own, args->root)
                         : gather_call(self, op, &own, args->root));
    }
    if (is_small && is_root) {
        take_gathered(self, &own);
    }
    if (is_root) {
        dl_mpi_spans_write(&self->outputs, args->outputs);
    }
    return DL_OK;
}

static dl_status
scatter_direct(dl_mpi_backend *self, const dl_mpi_span *own, int root)
{
    if (self->rank != root) {
        clear(self, &self->inputs);
    }
    clear(self, &self->outputs);
    self->outputs.spans[root] = *own;
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}

static dl_status
scatter_call(dl_mpi_backend *self, const dl_op_context *op, const dl_mpi_span *own,
             int root)
{
    dl_mpi_part output = dl_mpi_part_of(self, own), input = output;

    input.data = NULL;
    if (self->rank == root) {
        input.data = self->inputs.spans[0].data;
        if (own->data == self->inputs.spans[root].data) {
            output.data = self->mpi->in_place;
        }
    }
    int result = self->mpi->scatter(&input, &output, root, self->comm->handle);
    return dl_mpi_called(self, op, result, "MPI_Scatter");
}

/* Takes this rank's block out of the root's message, which has all blocks but their
 * first `kept` bytes. */
static void
take_scattered(dl_mpi_backend *self, int root, size_t kept, const dl_mpi_span *own)
{
    const dl_mpi_span *mine = &self->inputs.spans[self->rank];

    if (self->rank != root) {
        dl_mpi_take(self, root, (size_t)self->rank * own->size - kept, own);
    } else if (own->size > 0 && own->data != mine->data) {
        memcpy(own->data, mine->data, own->size);
    }
}

dl_status
dl_mpi_scatter(dl_backend *backend, const dl_op_context *op,
               const dl_scatter_args *args)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    bool is_root = self->rank == args->root;
    size_t size = dl_tensor_size(&args->output);
    size_t kept = args->root == 0 ? size : 0; /* the root's own block, if it is first */
    bool is_small =
        !args->is_uneven
        && size * (size_t)self->size - kept <= dl_mpi_meeting_room_for_one();
    bool is_direct = !is_small && (args->is_uneven || size > self->comm->piece);
    dl_bytes brought = {NULL, 0};
    dl_mpi_span own;

    if (is_root) {
        DL_TRY(dl_mpi_spans_place(&self->inputs, args->inputs,
                                  is_direct ? DL_MPI_ANYWHERE : DL_MPI_CONTIGUOUS));
        dl_mpi_spans_read(&self->inputs, args->inputs);
        brought.data = (const uint8_t *)self->inputs.spans[0].data + kept;
        brought.size = is_small ? self->inputs.size - kept : 0;
    }
    DL_TRY(dl_mpi_flatten(self, &args->output, false, &own));
    if (is_small) {
        DL_TRY(dl_mpi_tree_down(&self->meeting, op, args->root, brought));
        take_scattered(self, args->root, kept, &own);
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(is_direct ? scatter_direct(self, &own, args->root)
                         : scatter_call(self, op, &own, args->root));
    }
    dl_mpi_unflatten(&args->output, &own);
    return DL_OK;
}
