/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks whose sizes not all ranks know, or that only one rank sends or receives, as
 * messages from rank to rank.  A card goes before each, with the block behind it if that
 * is small.  A large block is received once its card is found to be right, and then from
 * array to array. */
#include <inttypes.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/mpi/mpi_state.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

/* The most bytes behind a card: of one block, and about so many of the blocks of all
 * ranks, but always LEAST_ALONG. */
#define MOST_ALONG ((size_t)32 << 10)
#define MOST_OF_ALL ((size_t)256 << 10)
#define LEAST_ALONG ((size_t)2 << 10)

typedef struct exchange {
    dl_mpi_backend *self;
    const dl_mpi_blocks *outgoing, *incoming;
    size_t along;  /* the largest block that follows its card */
    size_t staged; /* bytes of the staging memory that are taken */
} exchange;

static const dl_tensor *
block_of(const dl_mpi_blocks *blocks, int rank)
{
    bool is_there = blocks->list != NULL && (blocks->peer < 0 || blocks->peer == rank);

    return is_there ? &blocks->list[blocks->is_one ? 0 : rank] : NULL;
}

static bool
is_large(const exchange *all, const dl_tensor *block)
{
    return dl_tensor_size(block) > all->along;
}

static size_t
along_of(const dl_mpi_backend *self)
{
    size_t share = MOST_OF_ALL / (size_t)self->size;
    size_t most = share < MOST_ALONG ? share : MOST_ALONG;

    return most > LEAST_ALONG ? most & ~(size_t)7 : LEAST_ALONG;
}

static size_t
slot_size(const exchange *all)
{
    return sizeof(dl_mpi_card) + all->along;
}

static dl_mpi_card *
slot_at(const exchange *all, int index)
{
    return (dl_mpi_card *)(void *)(all->self->inbox.data
                                   + (size_t)index * slot_size(all));
}

/* Returns the bytes of the large blocks that are not contiguous. */
static size_t
staging_size(const exchange *all, const dl_mpi_blocks *blocks)
{
    size_t size = 0;

    for (int rank = 0; rank < all->self->size; rank++) {
        const dl_tensor *block = block_of(blocks, rank);
        if (block != NULL && is_large(all, block) && !block->is_contiguous) {
            size += dl_tensor_size(block);
        }
    }
    return size;
}

static dl_status
reserve(exchange *all)
{
    dl_mpi_backend *self = all->self;
    size_t staging =
        staging_size(all, all->outgoing) + staging_size(all, all->incoming);

    dl_buffer_clear(&self->inbox);
    DL_TRY(dl_buffer_reserve(&self->inbox, 2 * (size_t)self->size * slot_size(all)));
    return staging == 0 || dl_mpi_stage(self, staging) != NULL ? DL_OK
                                                               : dl_fail_no_memory();
}

/* Returns where MPI has a large block: the array, or memory for it. */
static char *
place(exchange *all, const dl_tensor *block)
{
    char *data = block->data;

    if (!block->is_contiguous) {
        data = (char *)all->self->staging.data + all->staged;
        all->staged += dl_tensor_size(block);
    } else {
        all->self->uses_arrays = true;
    }
    return data;
}

static dl_status
post(dl_mpi_backend *self, void *data, size_t size, int peer, bool is_send)
{
    dl_mpi_handle comm = self->comm->handle, request = 0, type;
    dl_mpi_part part;

    DL_TRY(dl_mpi_part_of(self->comm, data, size, &part, &type));
    int result = is_send ? self->mpi->isend(part.data, part.count, part.type, peer,
                                            DL_MPI_BLOCK_TAG, comm, &request)
                         : self->mpi->irecv(part.data, part.count, part.type, peer,
                                            DL_MPI_BLOCK_TAG, comm, &request);
    dl_mpi_type_free(self->comm, type);
    return dl_mpi_add(self, result, request, is_send ? "MPI_Isend" : "MPI_Irecv", peer);
}

static dl_status
send_block(exchange *all, int to, const dl_tensor *block)
{
    dl_mpi_card *card = slot_at(all, all->self->size + to);
    size_t size = dl_tensor_size(block), along = is_large(all, block) ? 0 : size;

    dl_mpi_write_card(all->self, card, size);
    if (along > 0) {
        dl_strided_gather_part(card + 1, block, 0, size);
    }
    DL_TRY(post(all->self, card, sizeof *card + along, to, true));
    if (!is_large(all, block)) {
        return DL_OK;
    }
    char *data = place(all, block);
    if (!block->is_contiguous) {
        dl_strided_gather_part(data, block, 0, size);
    }
    return post(all->self, data, size, to, true);
}

/* Takes a small block from behind its card, or posts the receive of a large one. */
static dl_status
take_block(exchange *all, int from, const dl_tensor *block)
{
    dl_mpi_backend *self = all->self;
    const dl_mpi_card *card = slot_at(all, from);
    size_t size = dl_tensor_size(block);

    DL_TRY(dl_mpi_compare_card(self, from, card));
    if (card->size != size) {
        return dl_fail(DL_MISMATCH,
                       "%s #%" PRIu64 " in group %s: rank %d sends a block of %" PRIu64
                       " bytes to rank %d, which expects %zu bytes",
                       dl_op_type_name(self->op->fingerprint.op), self->op->sequence,
                       self->comm->group_name, from, card->size, self->rank, size);
    }
    DL_TRY(dl_op_check_arrays(self->op));
    if (is_large(all, block)) {
        return post(self, place(all, block), size, from, false);
    }
    if (size > 0) {
        dl_strided_scatter_part(block, card + 1, 0, size);
    }
    return DL_OK;
}

/* Calls `each` for the ranks that blocks go to or come from, but not this one. */
static dl_status
for_each(exchange *all, const dl_mpi_blocks *blocks,
         dl_status (*each)(exchange *, int, const dl_tensor *))
{
    for (int distance = 1; distance < all->self->size; distance++) {
        int rank = (all->self->rank + distance) % all->self->size;
        const dl_tensor *block = block_of(blocks, rank);
        if (block != NULL) {
            DL_TRY(each(all, rank, block));
        }
    }
    return DL_OK;
}

static dl_status
expect_card(exchange *all, int from, const dl_tensor *block)
{
    (void)block;
    return post(all->self, slot_at(all, from), slot_size(all), from, false);
}

/* Waits for the cards, whose requests are the first ones. */
static dl_status
take_blocks(exchange *all)
{
    dl_mpi_backend *self = all->self;
    int index = 0;

    for (int distance = 1; distance < self->size; distance++) {
        int from = (self->rank + distance) % self->size;
        const dl_tensor *block = block_of(all->incoming, from);
        if (block != NULL) {
            DL_TRY(dl_mpi_await(self, &self->pending[index]));
            index++;
            DL_TRY(take_block(all, from, block));
        }
    }
    return DL_OK;
}

/* Copies this rank's own block, unless it is left where it is. */
static void
keep_own(const exchange *all)
{
    const dl_tensor *from = block_of(all->outgoing, all->self->rank);
    const dl_tensor *to = block_of(all->incoming, all->self->rank);

    if (from != NULL && to != NULL && from->data != to->data && from->count > 0) {
        dl_strided_copy_part(to, from, 0, dl_tensor_size(to));
    }
}

/* Copies large blocks from the staging memory, in which they lie in the order in which
 * they were placed. */
static dl_status
unstage(exchange *all, int from, const dl_tensor *block)
{
    (void)from;
    if (is_large(all, block) && !block->is_contiguous) {
        const char *data = (const char *)all->self->staging.data + all->staged;
        dl_strided_scatter_part(block, data, 0, dl_tensor_size(block));
        all->staged += dl_tensor_size(block);
    }
    return DL_OK;
}

dl_status
dl_mpi_exchange_blocks(dl_mpi_backend *self, const dl_mpi_blocks *outgoing,
                       const dl_mpi_blocks *incoming)
{
    exchange all = {self, outgoing, incoming, along_of(self), 0};

    DL_TRY(dl_mpi_begin(self, DL_MPI_ALL, -1, 0));
    self->is_compared = true; /* one by one */
    DL_TRY(reserve(&all));
    dl_blocking_begin();
    DL_TRY(for_each(&all, incoming, expect_card));
    DL_TRY(for_each(&all, outgoing, send_block));
    size_t sent = all.staged;
    DL_TRY(take_blocks(&all));
    keep_own(&all);
    DL_TRY(dl_mpi_finish(self));
    all.staged = sent;
    return for_each(&all, incoming, unstage);
}
