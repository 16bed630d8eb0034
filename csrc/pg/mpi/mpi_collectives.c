/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives that move bytes, as MPI's datatypes would add nothing.  Blocks from
 * rank to rank are messages of MPI's, from array to array. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/mpi/mpi_state.h"
#include "tensor/strided.h"

/* Blocks that go to other ranks, or come from them. */
typedef struct blocks {
    const dl_tensor *list; /* by rank, or one for all; NULL: none */
    bool is_one;
    int peer; /* the only rank; or -1 */
} blocks;

static const dl_tensor *
block_for(const blocks *blocks, int rank)
{
    bool is_there = blocks->list != NULL && (blocks->peer < 0 || blocks->peer == rank);

    return is_there ? &blocks->list[blocks->is_one ? 0 : rank] : NULL;
}

/* Returns the block of `rank` if MPI moves it, or NULL. */
static const dl_tensor *
moved_block(const dl_mpi_backend *self, const blocks *blocks, int rank)
{
    const dl_tensor *block = rank == self->rank ? NULL : block_for(blocks, rank);

    return block != NULL && dl_tensor_size(block) >= self->least ? block : NULL;
}

/* Returns the bytes of the blocks that are not contiguous. */
static size_t
staging_size(const dl_mpi_backend *self, const blocks *blocks)
{
    size_t size = 0;

    for (int rank = 0; rank < self->size; rank++) {
        const dl_tensor *block = moved_block(self, blocks, rank);
        size += block != NULL && !block->is_contiguous ? dl_tensor_size(block) : 0;
    }
    return size;
}

static dl_status
post_pieces(dl_mpi_backend *self, char *data, size_t size, int peer, bool is_send)
{
    const dl_mpi_table *mpi = self->mpi;

    for (size_t at = 0; at < size; at += self->piece) {
        int count = (int)(size - at < self->piece ? size - at : self->piece);
        dl_mpi_handle request = 0;
        int result = is_send ? mpi->isend(data + at, count, mpi->byte, peer, 0,
                                          self->comm, &request)
                             : mpi->irecv(data + at, count, mpi->byte, peer, 0,
                                          self->comm, &request);
        DL_TRY(dl_mpi_add(self, result, request, is_send ? "MPI_Isend" : "MPI_Irecv"));
    }
    return DL_OK;
}

/* Posts the messages of one side.  Blocks with gaps take their places in `staging`, one
 * behind the other. */
static dl_status
post_blocks(dl_mpi_backend *self, const blocks *blocks, bool is_send, char **staging)
{
    for (int distance = 1; distance < self->size; distance++) {
        int rank = (self->rank + distance) % self->size;
        const dl_tensor *block = moved_block(self, blocks, rank);
        if (block == NULL) {
            continue;
        }
        size_t size = dl_tensor_size(block);
        char *data = block->data;
        if (block->is_contiguous) {
            self->uses_arrays = true;
        } else {
            data = *staging;
            *staging += size;
        }
        if (is_send && !block->is_contiguous) {
            dl_strided_gather_part(data, block, 0, size);
        }
        DL_TRY(post_pieces(self, data, size, rank, is_send));
    }
    return DL_OK;
}

/* Copies what was received from the staging memory to the arrays with gaps. */
static void
unstage_blocks(const dl_mpi_backend *self, const blocks *blocks, const char *staging)
{
    for (int distance = 1; distance < self->size; distance++) {
        int rank = (self->rank + distance) % self->size;
        const dl_tensor *block = moved_block(self, blocks, rank);
        if (block != NULL && !block->is_contiguous) {
            dl_strided_scatter_part(block, staging, 0, dl_tensor_size(block));
            staging += dl_tensor_size(block);
        }
    }
}

/* Copies this rank's own block, unless it is left where it is. */
static void
keep_own(const dl_tensor *from, const dl_tensor *to)
{
    if (from != NULL && to != NULL && from->data != to->data && from->count > 0) {
        dl_strided_copy_part(to, from, 0, dl_tensor_size(to));
    }
}

/* Sends and receives the blocks of `least` bytes or more by messages of MPI's, from array
 * to array where these are contiguous; copies this rank's own block. */
static dl_status
exchange_with_all(dl_mpi_backend *self, const blocks *outgoing, const blocks *incoming)
{
    size_t room = staging_size(self, outgoing) + staging_size(self, incoming);
    char *staging = room > 0 ? dl_mpi_stage(self, room) : NULL;
    const char *received = staging;

    if (room > 0 && staging == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(post_blocks(self, incoming, false, &staging));
    DL_TRY(post_blocks(self, outgoing, true, &staging));
    keep_own(block_for(outgoing, self->rank), block_for(incoming, self->rank));
    DL_TRY(dl_mpi_finish(self));
    unstage_blocks(self, incoming, received);
    return DL_OK;
}

dl_status
dl_mpi_broadcast(dl_mpi_backend *self, const dl_call *call)
{
    const dl_tensor *tensor = &call->tensor;
    size_t size = dl_tensor_size(tensor);
    char *data = tensor->is_contiguous ? tensor->data : dl_mpi_stage(self, size);

    if (data == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_mpi_rendezvous(self));
    self->uses_arrays = tensor->is_contiguous;
    if (!tensor->is_contiguous && self->rank == call->root) {
        dl_strided_gather_part(data, tensor, 0, size);
    }
    for (size_t at = 0; at < size; at += self->piece) {
        int count = (int)(size - at < self->piece ? size - at : self->piece);
        dl_mpi_handle request = 0;
        int result = self->mpi->ibcast(data + at, count, self->mpi->byte, call->root,
                                       self->comm, &request);
        DL_TRY(dl_mpi_add(self, result, request, "MPI_Ibcast"));
    }
    DL_TRY(dl_mpi_finish(self));
    if (!tensor->is_contiguous && self->rank != call->root) {
        dl_strided_scatter_part(tensor, data, 0, size);
    }
    return DL_OK;
}

/* Returns whether the arrays are contiguous and one behind the other. */
static bool
are_one(const dl_tensor *arrays, int count)
{
    const char *next = arrays[0].data;

    for (int i = 0; i < count; i++) {
        if (!arrays[i].is_contiguous || arrays[i].data != next) {
            return false;
        }
        next += dl_tensor_size(&arrays[i]);
    }
    return true;
}

/* Gathers in the array that the outputs are, or in memory: MPI_Iallgather fills one array,
 * and the ranks differ in what they have. */
static dl_status
gather_in_one(dl_mpi_backend *self, const dl_call *call, size_t size)
{
    const dl_mpi_table *mpi = self->mpi;
    bool is_array = are_one(call->outputs, self->size);
    char *data = is_array ? call->outputs[0].data
                          : dl_mpi_stage(self, (size_t)self->size * size);
    dl_mpi_handle request = 0;

    if (data == NULL) {
        return dl_fail_no_memory();
    }
    char *own = data + (size_t)self->rank * size;
    if (own != call->tensor.data) {
        dl_strided_gather_part(own, &call->tensor, 0, size);
    }
    self->uses_arrays = is_array;
    int result = mpi->iallgather(mpi->abi.in_place, (int)size, mpi->byte, data,
                                 (int)size, mpi->byte, self->comm, &request);
    DL_TRY(dl_mpi_add(self, result, request, "MPI_Iallgather"));
    DL_TRY(dl_mpi_finish(self));
    for (int i = 0; i < self->size && !is_array; i++) {
        dl_strided_scatter_part(&call->outputs[i], data + (size_t)i * size, 0, size);
    }
    return DL_OK;
}

/* Blocks that an int does not count go as messages. */
dl_status
dl_mpi_all_gather(dl_mpi_backend *self, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);

    DL_TRY(dl_mpi_rendezvous(self));
    if (size > self->piece) {
        return exchange_with_all(self, &(blocks){&call->tensor, true, -1},
                                 &(blocks){call->outputs, false, -1});
    }
    return gather_in_one(self, call, size);
}

/* gather and scatter. */
dl_status
dl_mpi_move_rooted(dl_mpi_backend *self, const dl_call *call)
{
    const dl_tensor *list = call->op == DL_GATHER ? call->outputs : call->inputs;
    blocks own = {&call->tensor, true, call->root};
    blocks all = {self->rank == call->root ? list : NULL, false, -1};

    DL_TRY(dl_mpi_rendezvous(self));
    return call->op == DL_GATHER ? exchange_with_all(self, &own, &all)
                                 : exchange_with_all(self, &all, &own);
}

/* What goes over the CPU backend in place of a block that MPI moves.  The marks tell it
 * from a block of as many bytes, which a rank may expect by mistake. */
typedef struct announcement {
    uint64_t marks[2];
    uint64_t size; /* of the block */
} announcement;

static const uint64_t marks[2] = {UINT64_C(0x9c1d3a5be7f20486),
                                  UINT64_C(0x53e8b1769d04acf1)};

/* An all_to_all of the CPU backend, in which the large blocks are announced by their sizes:
 * only two ranks know of each. */
typedef struct announced {
    dl_tensor *outputs; /* behind the inputs, which are one allocation with the rest */
    dl_tensor *inputs;
    announcement *sent, *received; /* by rank */
    bool is_any;                   /* this rank has a block that MPI moves */
} announced;

static dl_status
announced_init(announced *self, const dl_call *call, int ranks)
{
    size_t count = (size_t)ranks;

    self->inputs = calloc(count, 2 * (sizeof *self->inputs + sizeof *self->sent));
    if (self->inputs == NULL) {
        return dl_fail_no_memory();
    }
    self->outputs = self->inputs + count;
    self->sent = (announcement *)(void *)(self->outputs + count);
    self->received = self->sent + count;
    for (size_t i = 0; i < count; i++) {
        self->inputs[i] = call->inputs[i];
        self->outputs[i] = call->outputs[i];
        self->sent[i] =
            (announcement){{marks[0], marks[1]}, dl_tensor_size(&call->inputs[i])};
    }
    return DL_OK;
}

/* Puts an announcement in the place of a large block. */
static void
announce_block(announced *self, dl_tensor *block, announcement *place, size_t least)
{
    if (dl_tensor_size(block) >= least) {
        *block = dl_tensor_of_bytes(place, sizeof *place);
        self->is_any = true;
    }
}

/* Returns how many bytes a rank sends, of which `block` is what was received. */
static uint64_t
announced_size(const dl_tensor *block)
{
    announcement found = {.size = 0};

    if (dl_tensor_size(block) != sizeof found) {
        return dl_tensor_size(block);
    }
    dl_strided_gather_part(&found, block, 0, sizeof found);
    bool is_marked = memcmp(found.marks, marks, sizeof marks) == 0;
    return is_marked ? found.size : sizeof found;
}

static dl_status
compare_sizes(const dl_mpi_backend *self, const announced *all, const dl_call *call)
{
    for (int rank = 0; rank < self->size; rank++) {
        size_t expected = dl_tensor_size(&call->outputs[rank]);
        uint64_t size = announced_size(&all->outputs[rank]);
        if (size != expected) {
            return dl_fail(DL_MISMATCH,
                           "%s #%" PRIu64 " in group %s: rank %d sends a block of "
                           "%" PRIu64 " bytes to rank %d, which expects %zu bytes",
                           dl_op_type_name(self->op->fingerprint.op),
                           self->op->sequence, self->group_name, rank, size, self->rank,
                           expected);
        }
    }
    return DL_OK;
}

static dl_status
exchange_announced(dl_mpi_backend *self, announced *all, const dl_call *call)
{
    dl_call small = *call;

    for (int rank = 0; rank < self->size; rank++) {
        announce_block(all, &all->inputs[rank], &all->sent[rank], self->least);
        announce_block(all, &all->outputs[rank], &all->received[rank], self->least);
    }
    small.inputs = all->inputs;
    small.outputs = all->outputs;
    dl_status status = dl_backend_run(self->pair.base.cpu, self->op, &small);
    if (status == DL_MISMATCH && all->is_any) {
        return dl_fail_while("blocks of %zu bytes or more, which MPI moves, count as "
                             "the %zu bytes that announce them",
                             self->least, sizeof *all->sent);
    }
    DL_TRY(status);
    DL_TRY(compare_sizes(self, all, call));
    if (!all->is_any) {
        return DL_OK;
    }
    DL_TRY(dl_op_check_arrays(self->op));
    dl_blocking_begin();
    return exchange_with_all(self, &(blocks){call->inputs, false, -1},
                             &(blocks){call->outputs, false, -1});
}

dl_status
dl_mpi_all_to_all(dl_mpi_backend *self, const dl_call *call)
{
    announced all = {.is_any = false};

    DL_TRY(dl_mpi_world_admit());
    DL_TRY(announced_init(&all, call, self->size));
    dl_status status = exchange_announced(self, &all, call);
    free(all.inputs);
    return status;
}
