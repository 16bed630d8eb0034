/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives that move bytes, as MPI's datatypes would add nothing.  Small blocks
 * travel with the cards when the ranks meet; sizes that MPI's counts can hold go
 * through its collectives; the rest goes as messages. */
#include <string.h>

#include "base/interrupt.h"
#include "pg/mpi/mpi_state.h"
#include "tensor/strided.h"

/* Makes an array contiguous: `span` is the array itself or, if it has gaps, memory in
 * `self->own`, filled if `is_read`. */
static dl_status
flatten(dl_mpi_backend *self, const dl_tensor *tensor, bool is_read, dl_mpi_span *span)
{
    *span = (dl_mpi_span){tensor->data, dl_tensor_size(tensor)};
    if (!tensor->is_contiguous) {
        dl_buffer_clear(&self->own);
        DL_TRY(dl_buffer_reserve(&self->own, span->size));
        span->data = (char *)self->own.data;
        if (is_read) {
            dl_strided_gather_part(span->data, tensor, 0, span->size);
        }
    }
    return DL_OK;
}

/* Copies such memory back to the array. */
static void
unflatten(const dl_tensor *tensor, const dl_mpi_span *span)
{
    if (span->data != tensor->data && span->size > 0) {
        dl_strided_scatter_part(tensor, span->data, 0, span->size);
    }
}

/* Returns whether an array of `size` bytes fits into the message of a meeting. */
static bool
fits_in_meeting(const dl_mpi_backend *self, size_t size)
{
    return size <= dl_mpi_meeting_room(&self->meeting);
}

/* Copies the array that `rank` contributed, from `offset` on, to `span`. */
static void
take_contribution(dl_mpi_backend *self, int rank, size_t offset,
                  const dl_mpi_span *span)
{
    const char *theirs = dl_mpi_meeting_array(&self->meeting, rank);

    if (span->size > 0) {
        memcpy(span->data, theirs + offset, span->size);
    }
}

static dl_bytes
bytes_of(const dl_mpi_span *span)
{
    return (dl_bytes){(const uint8_t *)span->data, span->size};
}

static dl_mpi_part
part_of(const dl_mpi_backend *self, const dl_mpi_span *span)
{
    return (dl_mpi_part){span->data, (int)span->size, self->mpi->byte};
}

/* Describes contiguous blocks, whose total an int can hold, by counts and offsets;
 * `lists` has two entries for each rank. */
static dl_mpi_parts
parts_of(const dl_mpi_backend *self, const dl_mpi_spans *spans, int *lists)
{
    int *counts = lists, *offsets = lists + self->size;
    int at = 0;

    for (int rank = 0; rank < self->size; rank++) {
        counts[rank] = (int)spans->spans[rank].size;
        offsets[rank] = at;
        at += counts[rank];
    }
    return (dl_mpi_parts){spans->spans[0].data, counts, offsets, self->mpi->byte};
}

dl_status
dl_mpi_barrier(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    (void)call;
    return dl_mpi_meet(&dl_mpi_self(backend)->meeting, op, &(dl_mpi_contribution){0});
}

static dl_status
broadcast_pieces(dl_mpi_backend *self, const dl_op_context *op, const dl_mpi_span *data,
                 int root)
{
    for (size_t at = 0; at < data->size; at += self->comm->piece) {
        dl_mpi_part part = dl_mpi_piece_of(self, data, at);
        DL_TRY(dl_mpi_called(
            self, op, self->mpi->bcast(&part, root, self->comm->handle), "MPI_Bcast"));
    }
    return DL_OK;
}

dl_status
dl_mpi_broadcast(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    bool is_root = self->rank == call->root;
    dl_mpi_span data;

    DL_TRY(flatten(self, &call->tensor, is_root, &data));
    if (data.size <= dl_mpi_meeting_room_for_one()) {
        DL_TRY(dl_mpi_tree_down(&self->meeting, op, call->root, bytes_of(&data)));
        if (!is_root) {
            take_contribution(self, call->root, 0, &data);
        }
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(broadcast_pieces(self, op, &data, call->root));
    }
    if (!is_root) {
        unflatten(&call->tensor, &data);
    }
    return DL_OK;
}

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
    dl_mpi_part input = part_of(self, own), output = part_of(self, &block);
    int result;

    if (own->data == outputs->spans[self->rank].data) {
        input.data = self->mpi->in_place;
    }
    if (outputs->is_even) {
        result = self->mpi->allgather(&input, &output, self->comm->handle);
        return dl_mpi_called(self, op, result, "MPI_Allgather");
    }
    dl_mpi_parts parts = parts_of(self, outputs, self->counts);
    result = self->mpi->allgatherv(&input, &parts, self->comm->handle);
    return dl_mpi_called(self, op, result, "MPI_Allgatherv");
}

/* Every rank knows all sizes, so all choose the same path. */
dl_status
dl_mpi_all_gather(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    dl_mpi_spans *outputs = &self->outputs;
    dl_mpi_span own;

    dl_mpi_spans_measure(outputs, call->outputs);
    bool is_small = fits_in_meeting(self, outputs->largest);
    bool is_large = outputs->size > self->comm->piece;
    DL_TRY(
        dl_mpi_spans_place(outputs, call->outputs,
                           is_small || is_large ? DL_MPI_ANYWHERE : DL_MPI_CONTIGUOUS));
    DL_TRY(flatten(self, &call->tensor, true, &own));
    if (is_small) {
        dl_mpi_contribution brought = {bytes_of(&own), 0};
        DL_TRY(dl_mpi_meet(&self->meeting, op, &brought));
        for (int rank = 0; rank < self->size; rank++) {
            take_contribution(self, rank, 0, &outputs->spans[rank]);
        }
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(is_large ? all_gather_direct(self, &own)
                        : all_gather_call(self, op, &own));
    }
    dl_mpi_spans_write(outputs, call->outputs);
    return DL_OK;
}

static dl_status
gather_direct(dl_mpi_backend *self, const dl_mpi_span *own, int root)
{
    dl_mpi_spans_clear(&self->inputs);
    if (self->rank != root) {
        dl_mpi_spans_clear(&self->outputs);
    }
    self->inputs.spans[root] = *own;
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}

static dl_status
gather_call(dl_mpi_backend *self, const dl_op_context *op, const dl_mpi_span *own,
            int root)
{
    dl_mpi_part input = part_of(self, own), output = input;

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
            take_contribution(self, rank, 0, span);
        } else if (span->size > 0 && span->data != own->data) {
            memcpy(span->data, own->data, span->size);
        }
    }
}

/* The path depends only on what all ranks know: whether blocks differ in size, and if
 * not, the size of a block. */
dl_status
dl_mpi_gather(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    bool is_root = self->rank == call->root;
    size_t size = dl_tensor_size(&call->tensor);
    bool is_small = !call->is_uneven && fits_in_meeting(self, size);
    bool is_direct = call->is_uneven || size > self->comm->piece;
    dl_mpi_span own;

    if (is_root) {
        DL_TRY(dl_mpi_spans_place(&self->outputs, call->outputs,
                                  is_small || is_direct ? DL_MPI_ANYWHERE
                                                        : DL_MPI_CONTIGUOUS));
    }
    DL_TRY(flatten(self, &call->tensor, true, &own));
    if (is_small) {
        /* The root's own block need not travel. */
        dl_bytes brought = is_root ? (dl_bytes){NULL, 0} : bytes_of(&own);
        DL_TRY(dl_mpi_tree_up(&self->meeting, op, call->root, brought));
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(is_direct ? gather_direct(self, &own, call->root)
                         : gather_call(self, op, &own, call->root));
    }
    if (is_small && is_root) {
        take_gathered(self, &own);
    }
    if (is_root) {
        dl_mpi_spans_write(&self->outputs, call->outputs);
    }
    return DL_OK;
}

static dl_status
scatter_direct(dl_mpi_backend *self, const dl_mpi_span *own, int root)
{
    if (self->rank != root) {
        dl_mpi_spans_clear(&self->inputs);
    }
    dl_mpi_spans_clear(&self->outputs);
    self->outputs.spans[root] = *own;
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}

static dl_status
scatter_call(dl_mpi_backend *self, const dl_op_context *op, const dl_mpi_span *own,
             int root)
{
    dl_mpi_part output = part_of(self, own), input = output;

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
        take_contribution(self, root, (size_t)self->rank * own->size - kept, own);
    } else if (own->size > 0 && own->data != mine->data) {
        memcpy(own->data, mine->data, own->size);
    }
}

dl_status
dl_mpi_scatter(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    bool is_root = self->rank == call->root;
    size_t size = dl_tensor_size(&call->tensor);
    size_t kept = call->root == 0 ? size : 0; /* the root's own block, if it is first */
    bool is_small =
        !call->is_uneven
        && size * (size_t)self->size - kept <= dl_mpi_meeting_room_for_one();
    bool is_direct = !is_small && (call->is_uneven || size > self->comm->piece);
    dl_bytes brought = {NULL, 0};
    dl_mpi_span own;

    if (is_root) {
        DL_TRY(dl_mpi_spans_place(&self->inputs, call->inputs,
                                  is_direct ? DL_MPI_ANYWHERE : DL_MPI_CONTIGUOUS));
        dl_mpi_spans_read(&self->inputs, call->inputs);
        brought.data = (const uint8_t *)self->inputs.spans[0].data + kept;
        brought.size = is_small ? self->inputs.size - kept : 0;
    }
    DL_TRY(flatten(self, &call->tensor, false, &own));
    if (is_small) {
        DL_TRY(dl_mpi_tree_down(&self->meeting, op, call->root, brought));
        take_scattered(self, call->root, kept, &own);
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(is_direct ? scatter_direct(self, &own, call->root)
                         : scatter_call(self, op, &own, call->root));
    }
    unflatten(&call->tensor, &own);
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
        dl_mpi_parts input = parts_of(self, &self->inputs, self->counts);
        dl_mpi_parts output =
            parts_of(self, &self->outputs, self->counts + 2 * self->size);
        int result = self->mpi->alltoallv(&input, &output, self->comm->handle);
        return dl_mpi_called(self, op, result, "MPI_Alltoallv");
    }
    dl_mpi_part input = part_of(self, &inputs[0]), output = part_of(self, &outputs[0]);
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
           | (fits_in_meeting(self, inputs->size) ? 0u : DL_MPI_HEAVY);
}

/* MPI forbids memory that is both its input and its output. */
static bool
shares_own_block(const dl_mpi_backend *self, const dl_call *call)
{
    return call->inputs[self->rank].data == call->outputs[self->rank].data;
}

dl_status
dl_mpi_all_to_all(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    bool is_shared = shares_own_block(self, call);

    DL_TRY(dl_mpi_spans_place(&self->inputs, call->inputs,
                              is_shared ? DL_MPI_COPIED : DL_MPI_CONTIGUOUS));
    DL_TRY(dl_mpi_spans_place(&self->outputs, call->outputs, DL_MPI_CONTIGUOUS));
    dl_mpi_spans_read(&self->inputs, call->inputs);
    uint32_t flags = flags_of(self);
    size_t carried = (flags & DL_MPI_HEAVY) == 0 ? self->inputs.size : 0;
    dl_mpi_contribution brought = {
        {(const uint8_t *)self->inputs.spans[0].data, carried}, flags};
    DL_TRY(dl_mpi_meet(&self->meeting, op, &brought));
    if ((self->meeting.flags & (DL_MPI_HEAVY | DL_MPI_UNEVEN)) == 0) {
        for (int rank = 0; rank < self->size; rank++) {
            const dl_mpi_span *block = &self->outputs.spans[rank];
            take_contribution(self, rank, (size_t)self->rank * block->size, block);
        }
    } else {
        DL_TRY(dl_mpi_meeting_commit(&self->meeting, op));
        dl_blocking_begin();
        DL_TRY(all_to_all_call(self, op));
    }
    dl_mpi_spans_write(&self->outputs, call->outputs);
    return DL_OK;
}
