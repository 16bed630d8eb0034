/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_plain.h"

#include <string.h>

#include "base/interrupt.h"
#include "tensor/strided.h"

dl_status
dl_mpi_flatten(dl_mpi_backend *self, const dl_tensor *tensor, bool is_read,
               dl_mpi_span *span)
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

void
dl_mpi_unflatten(const dl_tensor *tensor, const dl_mpi_span *span)
{
    if (span->data != tensor->data && span->size > 0) {
        dl_strided_scatter_part(tensor, span->data, 0, span->size);
    }
}

dl_status
dl_mpi_meet_with(dl_mpi_backend *self, const dl_op_context *op, dl_bytes array,
                 uint32_t flags)
{
    dl_mpi_contribution own = {array, flags};

    return dl_mpi_meet(&self->meeting, op, &own);
}

dl_status
dl_mpi_meet_empty(dl_mpi_backend *self, const dl_op_context *op)
{
    DL_TRY(dl_mpi_meet_with(self, op, (dl_bytes){NULL, 0}, 0));
    DL_TRY(dl_mpi_meeting_commit(&self->meeting, op));
    dl_blocking_begin();
    return DL_OK;
}

dl_bytes
dl_mpi_bytes_of(const dl_mpi_span *span)
{
    return (dl_bytes){(const uint8_t *)span->data, span->size};
}

dl_mpi_part
dl_mpi_part_of(const dl_mpi_backend *self, const dl_mpi_span *span)
{
    return (dl_mpi_part){span->data, (int)span->size, self->mpi->byte};
}

bool
dl_mpi_fits(const dl_mpi_backend *self, size_t size)
{
    return size <= dl_mpi_meeting_room(&self->meeting);
}

void
dl_mpi_take(dl_mpi_backend *self, int rank, size_t offset, const dl_mpi_span *span)
{
    const char *theirs = dl_mpi_meeting_array(&self->meeting, rank);

    if (span->size > 0) {
        memcpy(span->data, theirs + offset, span->size);
    }
}

dl_mpi_parts
dl_mpi_parts_of(const dl_mpi_backend *self, const dl_mpi_spans *spans, int *lists)
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
