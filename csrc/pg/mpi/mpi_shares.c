/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_shares.h"

#include <string.h>

/* A part is reduced while the next one is in flight; with its target it takes half
 * of a core's cache. */
#define PART ((size_t)256 << 10)

/* With smaller shares, a message for each costs more than whole arrays in few
 * messages. */
#define LEAST_SHARE 1024

/* One step: sends a share to `to`, and receives this rank's share from `from`. */
typedef struct step {
    const dl_mpi_reduction *how;
    dl_mpi_span outgoing;
    const char *ours;   /* what the received share is reduced with */
    dl_mpi_span folded; /* where the result goes */
    char *inboxes;      /* two, of one part each */
    int to, from;
} step;

static size_t
part_size(const dl_mpi_backend *self)
{
    return PART < self->comm->piece ? PART : self->comm->piece;
}

bool
dl_mpi_shares_pay(const dl_mpi_backend *self, const dl_mpi_reduction *how, size_t size)
{
    return how->is_ours && self->mpi->sends_all && self->size > 1
           && size / (size_t)self->size >= LEAST_SHARE;
}

/* Divides an array into one share for each rank, described by `self->outputs`. */
static void
divide(dl_mpi_backend *self, const dl_mpi_reduction *how, const dl_mpi_span *data)
{
    size_t ranks = (size_t)self->size, count = data->size / how->item_size;
    char *at = data->data;

    for (size_t rank = 0; rank < ranks; rank++) {
        size_t share = count / ranks + (rank < count % ranks ? 1 : 0);
        self->outputs.spans[rank] = (dl_mpi_span){at, share * how->item_size};
        at += share * how->item_size;
    }
}

/* Describes the part that begins `at` bytes into a share; it is empty at the
 * share's end and beyond. */
static dl_mpi_part
part_at(const dl_mpi_backend *self, char *data, size_t size, size_t at)
{
    size_t left = at < size ? size - at : 0;

    return (dl_mpi_part){data, (int)(left < part_size(self) ? left : part_size(self)),
                         self->mpi->byte};
}

static char *
inbox_at(const dl_mpi_backend *self, const step *step, size_t at)
{
    return step->inboxes + at / part_size(self) % 2 * part_size(self);
}

static dl_status
expect(dl_mpi_backend *self, const step *step, size_t at, dl_mpi_handle *request)
{
    dl_mpi_part part = part_at(self, inbox_at(self, step, at), step->folded.size, at);

    *request = 0;
    if (part.count == 0) {
        return DL_OK;
    }
    return dl_mpi_check(self->mpi,
                        self->mpi->irecv(&part, step->from, DL_MPI_OWN_TAG,
                                         self->comm->handle, request),
                        "MPI_Irecv");
}

/* Waits for the part at `at`, and reduces it. */
static dl_status
take(dl_mpi_backend *self, const step *step, size_t at, dl_mpi_handle *request)
{
    const dl_mpi_reduction *how = step->how;
    char *inbox = inbox_at(self, step, at);
    dl_mpi_part part = part_at(self, inbox, step->folded.size, at);

    if (part.count == 0) {
        return DL_OK;
    }
    DL_TRY(dl_mpi_finish(self->comm, request));
    dl_reduce_kernel(how->op, how->worked)(step->folded.data + at, step->ours + at,
                                           inbox, (size_t)part.count / how->item_size);
    return DL_OK;
}

static dl_status
give(dl_mpi_backend *self, const step *step, size_t at, dl_mpi_handle *request)
{
    dl_mpi_part part = part_at(self, step->outgoing.data + at, step->outgoing.size, at);

    *request = 0;
    if (part.count == 0) {
        return DL_OK;
    }
    return dl_mpi_check(
        self->mpi,
        self->mpi->isend(&part, step->to, DL_MPI_OWN_TAG, self->comm->handle, request),
        "MPI_Isend");
}

/* The next part is posted before this one is reduced.  Shares may differ by one
 * element, so one side may have one part more. */
static dl_status
walk_parts(dl_mpi_backend *self, const step *step, dl_mpi_handle coming[2],
           dl_mpi_handle going[2])
{
    size_t out = step->outgoing.size, in = step->folded.size, size = part_size(self);

    DL_TRY(expect(self, step, 0, &coming[0]));
    DL_TRY(give(self, step, 0, &going[0]));
    for (size_t at = 0; at < (out > in ? out : in); at += size) {
        size_t turn = at / size % 2;
        DL_TRY(expect(self, step, at + size, &coming[1 - turn]));
        DL_TRY(give(self, step, at + size, &going[1 - turn]));
        DL_TRY(take(self, step, at, &coming[turn]));
        if (at < out) {
            DL_TRY(dl_mpi_finish(self->comm, &going[turn]));
        }
    }
    return DL_OK;
}

static dl_status
walk(dl_mpi_backend *self, const step *step)
{
    dl_mpi_handle coming[2] = {0, 0}, going[2] = {0, 0};
    dl_status status = walk_parts(self, step, coming, going);
    bool is_left = false;

    for (int i = 0; status != DL_OK && i < 2; i++) {
        is_left |= dl_mpi_comm_leave(self->comm, coming[i], true);
        is_left |= dl_mpi_comm_leave(self->comm, going[i], false);
    }
    if (is_left) {
        self->own = (dl_buffer){0}; /* MPI may still use the inboxes */
    }
    return status;
}

/* Reduces this rank's share of all arrays into `target`, which may be
 * where its own lies. */
static dl_status
fold_share(dl_mpi_backend *self, const dl_mpi_reduction *how, char *target,
           char *inboxes)
{
    const dl_mpi_span *shares = self->outputs.spans, *own = &shares[self->rank];

    for (int distance = 1; distance < self->size; distance++) {
        int to = (self->rank + distance) % self->size;
        step step = {
            .how = how,
            .outgoing = shares[to],
            .ours = distance == 1 ? own->data : target,
            .folded = {target, own->size},
            .inboxes = inboxes,
            .to = to,
            .from = (self->rank - distance + self->size) % self->size,
        };
        DL_TRY(walk(self, &step));
    }
    return DL_OK;
}

static dl_status
reserve(dl_mpi_backend *self, size_t size)
{
    dl_buffer_clear(&self->own);
    return dl_buffer_reserve(&self->own, size);
}

dl_status
dl_mpi_all_reduce_shares(dl_mpi_backend *self, const dl_mpi_reduction *how,
                         const dl_mpi_span *data)
{
    divide(self, how, data);
    DL_TRY(reserve(self, 2 * part_size(self)));
    const dl_mpi_span *own = &self->outputs.spans[self->rank];
    DL_TRY(fold_share(self, how, own->data, (char *)self->own.data));
    for (int rank = 0; rank < self->size; rank++) {
        self->inputs.spans[rank] = *own;
    }
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}

dl_status
dl_mpi_reduce_shares(dl_mpi_backend *self, const dl_mpi_reduction *how,
                     const dl_mpi_span *data, int root)
{
    size_t spans_size = (size_t)self->size * sizeof *self->inputs.spans;
    bool is_root = self->rank == root;

    divide(self, how, data);
    dl_mpi_span share = self->outputs.spans[self->rank];
    DL_TRY(reserve(self, 2 * part_size(self) + share.size));
    char *inboxes = (char *)self->own.data;
    if (!is_root) {
        share.data = inboxes + 2 * part_size(self);
    }
    DL_TRY(fold_share(self, how, share.data, inboxes));
    memset(self->inputs.spans, 0, spans_size);
    self->inputs.spans[root] = share;
    if (!is_root) {
        memset(self->outputs.spans, 0, spans_size);
    }
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}
