/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks of any size, sent from rank to rank as messages: for sizes that MPI's
 * collectives cannot count, and where only one side knows a size.  In each step a rank
 * sends to one rank and receives from another, so that no rank is flooded. */
#include "base/interrupt.h"
#include "pg/mpi/mpi_state.h"
#include "tensor/copy.h"

/* MPI keeps the order of messages between two ranks, so pieces need no numbers. */
static dl_status
begin_piece(dl_mpi_backend *self, const dl_mpi_part *part, int peer,
            dl_mpi_handle *request)
{
    return dl_mpi_check(
        self->mpi,
        self->mpi->irecv(part, peer, DL_MPI_OWN_TAG, self->comm->handle, request),
        "MPI_Irecv");
}

static dl_mpi_part
piece_of(const dl_mpi_backend *self, const dl_mpi_span *span, size_t at)
{
    size_t left = at < span->size ? span->size - at : 0;
    size_t size = left < self->comm->piece ? left : self->comm->piece;

    return (dl_mpi_part){span->data + (size > 0 ? at : 0), (int)size, self->mpi->byte};
}

/* Sends and receives one piece each.  `requests` are zero, and those of a failed call
 * may be pending. */
static dl_status
swap_pieces(dl_mpi_backend *self, const dl_mpi_part *out, int to, const dl_mpi_part *in,
            int from, dl_mpi_handle requests[2])
{
    if (in->count > 0) {
        DL_TRY(begin_piece(self, in, from, &requests[0]));
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
swap(dl_mpi_backend *self, const dl_mpi_span *outgoing, int to,
     const dl_mpi_span *incoming, int from)
{
    size_t most = outgoing->size > incoming->size ? outgoing->size : incoming->size;

    for (size_t at = 0; at < most; at += self->comm->piece) {
        dl_mpi_part out = piece_of(self, outgoing, at);
        dl_mpi_part in = piece_of(self, incoming, at);
        dl_mpi_handle requests[2] = {0, 0};
        dl_status status = swap_pieces(self, &out, to, &in, from, requests);
        if (status != DL_OK) {
            dl_mpi_comm_leave(self->comm, requests[0], true);
            dl_mpi_comm_leave(self->comm, requests[1], false);
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
        DL_TRY(swap(self, &outgoing[to], to, &incoming[from], from));
    }
    return DL_OK;
}
