/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives that move bytes, as MPI's datatypes would add nothing. */
#include "pg/mpi/mpi_state.h"
#include "tensor/strided.h"

/* Blocks of equal size that a rank has in a collective: those of all ranks, or one.  They
 * are in the caller's arrays, in memory of the backend, or behind the cards. */
typedef struct movement {
    dl_mpi_way way;
    int root;
    int count;               /* of the blocks that this rank has */
    const dl_tensor *arrays; /* by block; MPI may take them if they are one */
    const dl_tensor *input;  /* this rank's own block, or NULL */
    bool is_output;          /* the arrays are written */
    char *data;
    size_t stride; /* from block to block */
} movement;

static void
read_array(void *target, const dl_tensor *array)
{
    if (array->count > 0 && array->data != target) {
        dl_strided_gather_part(target, array, 0, dl_tensor_size(array));
    }
}

static void
write_array(const dl_tensor *array, const void *source)
{
    if (array->count > 0 && array->data != source) {
        dl_strided_scatter_part(array, source, 0, dl_tensor_size(array));
    }
}

/* Returns whether arrays are contiguous and one behind the other. */
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

static void
bring(const dl_mpi_backend *self, const movement *how)
{
    size_t own = how->count > 1 ? (size_t)self->rank : 0;

    if (how->input != NULL) {
        read_array(how->data + own * how->stride, how->input);
    }
}

static void
take(const movement *how)
{
    for (int i = 0; i < how->count && how->is_output; i++) {
        write_array(&how->arrays[i], how->data + (size_t)i * how->stride);
    }
}

/* Moves blocks that follow the cards. */
static dl_status
move_along(dl_mpi_backend *self, movement *how)
{
    how->data = dl_mpi_block(self, 0);
    how->stride = self->stride;
    bring(self, how);
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    DL_TRY(dl_mpi_finish(self));
    take(how);
    return DL_OK;
}

static dl_status
move_large(dl_mpi_backend *self, movement *how, size_t size)
{
    size_t total = size * (size_t)how->count;
    bool is_array = total > DL_MPI_STAGED && are_one(how->arrays, how->count);

    how->data = is_array ? how->arrays[0].data : dl_mpi_stage(self, total);
    how->stride = size;
    if (how->data == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_mpi_send_cards(self, total, is_array));
    bring(self, how);
    DL_TRY(dl_mpi_start(self, how->data, size));
    DL_TRY(dl_mpi_finish(self));
    take(how);
    return DL_OK;
}

static dl_status
move(dl_mpi_backend *self, movement how)
{
    size_t size = dl_tensor_size(&how.arrays[0]);
    bool is_small = size <= dl_mpi_room(self, how.way);

    DL_TRY(dl_mpi_begin(self, how.way, how.root, is_small ? size : 0));
    how.count = dl_mpi_has_all(self) ? self->size : 1;
    return is_small ? move_along(self, &how) : move_large(self, &how, size);
}

dl_status
dl_mpi_barrier(dl_mpi_backend *self, const dl_call *call)
{
    (void)call;
    DL_TRY(dl_mpi_begin(self, DL_MPI_ALL, 0, 0));
    DL_TRY(dl_mpi_send_cards(self, 0, false));
    return dl_mpi_finish(self);
}

dl_status
dl_mpi_broadcast(dl_mpi_backend *self, const dl_call *call)
{
    bool is_root = self->rank == call->root;

    return move(self, (movement){.way = DL_MPI_DOWN,
                                 .root = call->root,
                                 .arrays = &call->tensor,
                                 .input = is_root ? &call->tensor : NULL,
                                 .is_output = !is_root});
}

static bool
are_even(const dl_tensor *blocks, int count)
{
    for (int i = 1; i < count; i++) {
        if (blocks[i].count != blocks[0].count) {
            return false;
        }
    }
    return true;
}

dl_status
dl_mpi_all_gather(dl_mpi_backend *self, const dl_call *call)
{
    if (!are_even(call->outputs, self->size)) {
        return dl_mpi_exchange_blocks(self, &(dl_mpi_blocks){&call->tensor, true, -1},
                                      &(dl_mpi_blocks){call->outputs, false, -1});
    }
    return move(self, (movement){.way = DL_MPI_ALL,
                                 .arrays = call->outputs,
                                 .input = &call->tensor,
                                 .is_output = true});
}

/* Only the root may know the sizes. */
dl_status
dl_mpi_gather(dl_mpi_backend *self, const dl_call *call)
{
    bool is_root = self->rank == call->root;

    return dl_mpi_exchange_blocks(
        self, &(dl_mpi_blocks){&call->tensor, true, call->root},
        &(dl_mpi_blocks){is_root ? call->outputs : NULL, false, -1});
}

dl_status
dl_mpi_scatter(dl_mpi_backend *self, const dl_call *call)
{
    bool is_root = self->rank == call->root;

    return dl_mpi_exchange_blocks(
        self, &(dl_mpi_blocks){is_root ? call->inputs : NULL, false, -1},
        &(dl_mpi_blocks){&call->tensor, true, call->root});
}

dl_status
dl_mpi_all_to_all(dl_mpi_backend *self, const dl_call *call)
{
    return dl_mpi_exchange_blocks(self, &(dl_mpi_blocks){call->inputs, false, -1},
                                  &(dl_mpi_blocks){call->outputs, false, -1});
}
