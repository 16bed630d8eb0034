/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_spans.h"

#include <stdlib.h>

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
    spans->size = 0;
    spans->is_even = true;
    for (int i = 0; i < spans->count; i++) {
        spans->spans[i].size = dl_tensor_size(&blocks[i]);
        spans->size += spans->spans[i].size;
        if (spans->spans[i].size != spans->spans[0].size) {
            spans->is_even = false;
        }
    }
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
