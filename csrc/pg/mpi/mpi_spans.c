/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks in the layout that MPI needs, and their transfer from rank to rank as
 * messages. */
#include <stdlib.h>
#include <string.h>

#include "pg/mpi/mpi_state.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

dl_status
dl_mpi_spans_init(dl_mpi_spans *spans, int count)
{
    spans->count = count;
    spans->spans = calloc((size_t)count, sizeof *spans->spans);
    return spans->spans == NULL ? dl_fail_no_memory() : DL_OK;
}

void
dl_mpi_spans_fini(dl_mpi_spans *spans)
{
    free(spans->spans);
    dl_buffer_fini(&spans->copy);
}

void
dl_mpi_spans_measure(dl_mpi_spans *spans, const dl_tensor *blocks)
{
    spans->size = spans->largest = 0;
    spans->is_even = true;
    for (int i = 0; i < spans->count; i++) {
        size_t size = spans->spans[i].size = dl_tensor_size(&blocks[i]);
        spans->size += size;
        spans->largest = size > spans->largest ? size : spans->largest;
        if (size != spans->spans[0].size) {
            spans->is_even = false;
        }
    }
}

void
dl_mpi_spans_clear(dl_mpi_spans *spans)
{
    memset(spans->spans, 0, (size_t)spans->count * sizeof *spans->spans);
}

static bool
are_contiguous(const dl_tensor *blocks, int count)
{
    const char *next = blocks[0].data;

    for (int i = 0; i < count; i++) {
        if (!blocks[i].is_contiguous
            || (blocks[i].count > 0 && blocks[i].data != next)) {
            return false;
        }
        next += dl_tensor_size(&blocks[i]);
    }
    return true;
}

dl_status
dl_mpi_spans_place(dl_mpi_spans *spans, const dl_tensor *blocks, dl_mpi_layout lie)
{
    bool is_whole =
        lie == DL_MPI_COPIED
        || (lie == DL_MPI_CONTIGUOUS && !are_contiguous(blocks, spans->count));
    size_t copied = 0, at = 0;

    dl_mpi_spans_measure(spans, blocks);
    for (int i = 0; i < spans->count; i++) {
        bool is_copied = is_whole || !blocks[i].is_contiguous;
        copied += is_copied ? spans->spans[i].size : 0;
    }
    dl_buffer_clear(&spans->copy);
    DL_TRY(dl_buffer_reserve(&spans->copy, copied));
    for (int i = 0; i < spans->count; i++) {
        bool is_copied = is_whole || !blocks[i].is_contiguous;
        spans->spans[i].data =
            is_copied ? (char *)spans->copy.data + at : (char *)blocks[i].data;
        at += is_copied ? spans->spans[i].size : 0;
    }
    return DL_OK;
}

void
dl_mpi_spans_read(const dl_mpi_spans *spans, const dl_tensor *blocks)
{
    for (int i = 0; i < spans->count; i++) {
        const dl_mpi_span *span = &spans->spans[i];
        if (span->data != blocks[i].data && span->size > 0) {
            dl_strided_gather_part(span->data, &blocks[i], 0, span->size);
        }
    }
}

void
dl_mpi_spans_write(const dl_mpi_spans *spans, const dl_tensor *blocks)
{
    for (int i = 0; i < spans->count; i++) {
        const dl_mpi_span *span = &spans->spans[i];
        if (span->data != blocks[i].data && span->size > 0) {
            dl_strided_scatter_part(&blocks[i], span->data, 0, span->size);
        }
    }
}

dl_mpi_part
dl_mpi_piece_of(const dl_mpi_backend *self, const dl_mpi_span *span, size_t at)
{
    size_t left = at < span->size ? span->size - at : 0;
    size_t size = left < self->comm->piece ? left : self->comm->piece;

    return (dl_mpi_part){span->data + (size > 0 ? at : 0), (int)size, self->mpi->byte};
}

/* Sends and receives one piece each.  `requests` are zero, and those of a failed call
 * may be pending.  MPI keeps the order of messages between two ranks, so pieces need no
 * numbers. */
static dl_status
exchange_pieces(dl_mpi_backend *self, const dl_mpi_part *out, int to,
                const dl_mpi_part *in, int from, dl_mpi_handle requests[2])
{
    if (in->count > 0) {
        int result = self->mpi->irecv(in, from, DL_MPI_OWN_TAG, self->comm->handle,
                                      &requests[0]);
        DL_TRY(dl_mpi_check(self->mpi, result, "MPI_Irecv"));
    }
    if (out->count > 0) {
        int result =
            self->mpi->isend(out, to, DL_MPI_OWN_TAG, self->comm->handle, &requests[1]);
        DL_TRY(dl_mpi_check(self->mpi, result, "MPI_Isend"));
        DL_TRY(dl_mpi_finish(self->comm, &requests[1]));
    }
    return in->count > 0 ? dl_mpi_finish(self->comm, &requests[0]) : DL_OK;
}

/* One step: sends and receives at the same time, piece by piece. */
static dl_status
exchange_spans(dl_mpi_backend *self, const dl_mpi_span *outgoing, int to,
               const dl_mpi_span *incoming, int from)
{
    size_t most = outgoing->size > incoming->size ? outgoing->size : incoming->size;

    for (size_t at = 0; at < most; at += self->comm->piece) {
        dl_mpi_part out = dl_mpi_piece_of(self, outgoing, at);
        dl_mpi_part in = dl_mpi_piece_of(self, incoming, at);
        dl_mpi_handle requests[2] = {0, 0};
        dl_status status = exchange_pieces(self, &out, to, &in, from, requests);
        if (status != DL_OK) {
            bool is_left = dl_mpi_comm_leave(self->comm, requests[0], true);
            is_left |= dl_mpi_comm_leave(self->comm, requests[1], false);
            if (is_left) {
                /* MPI may still use the arrays, or the copies, which are never freed. */
                self->inputs.copy = self->outputs.copy = (dl_buffer){0};
                self->own = self->staging = (dl_buffer){0};
                dl_backend_keep_memory();
            }
            return status;
        }
    }
    return DL_OK;
}

dl_status
dl_mpi_direct(dl_mpi_backend *self, const dl_mpi_span *outgoing,
              const dl_mpi_span *incoming)
{
    const dl_mpi_span *mine = &outgoing[self->rank], *kept = &incoming[self->rank];

    if (mine->size > 0 && mine->data != kept->data) {
        dl_copy(kept->data, mine->data, mine->size);
    }
    for (int distance = 1; distance < self->size; distance++) {
        int to = (self->rank + distance) % self->size;
        int from = (self->rank - distance + self->size) % self->size;
        DL_TRY(exchange_spans(self, &outgoing[to], to, &incoming[from], from));
    }
    return DL_OK;
}
