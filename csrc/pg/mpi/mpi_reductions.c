/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions.  Small arrays travel along when the ranks meet, and are reduced in the
 * order of ranks; others are reduced by MPI.
 *
 * MPI is made to reduce as this library promises: floats shorter than 32 bits are
 * widened to float32 and rounded once, at the end; MIN and MAX of floats propagate NaN
 * by operations of our own; operations on bool are logical; AVG is a sum and a
 * division.
 *
 * The library's algorithm for operations of our own may send the whole array in each
 * round.  Then every rank reduces its share of all arrays, one part while the next is
 * in flight, and the shares are put together. */
#include <string.h>

#include "pg/mpi/mpi_state.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

/* A part is reduced while the next one is in flight; with its target it takes half
 * of a core's cache. */
#define PART ((size_t)256 << 10)

/* With smaller shares, a message for each costs more than whole arrays in few
 * messages. */
#define LEAST_SHARE 1024

typedef struct reduction {
    dl_reduce_op op;
    double factor;
    dl_dtype dtype;   /* of the arrays */
    dl_dtype worked;  /* that the reduction computes in */
    size_t item_size; /* of an element of `worked` */
    dl_mpi_handle type;
    dl_mpi_handle mpi_op;
    bool is_ours; /* mpi_op is an operation of our own */
} reduction;

/* One step: sends a share to `to`, and receives this rank's share from `from`. */
typedef struct step {
    const reduction *how;
    dl_mpi_span outgoing;
    const char *ours;   /* what the received share is reduced with */
    dl_mpi_span folded; /* where the result goes */
    char *inboxes;      /* two, of one part each */
    int to, from;
} step;

/* A bool is a byte of 0 or 1, and MPI's logical operations accept integers. */
static dl_mpi_handle
type_of(const dl_mpi_table *mpi, dl_dtype dtype)
{
    const dl_mpi_handle types[DL_DTYPE_COUNT] = {
        [DL_BOOL] = mpi->uint8,
        [DL_INT8] = mpi->int8,
        [DL_UINT8] = mpi->uint8,
        [DL_INT16] = mpi->int16,
        [DL_UINT16] = mpi->uint16,
        [DL_INT32] = mpi->int32,
        [DL_UINT32] = mpi->uint32,
        [DL_INT64] = mpi->int64,
        [DL_UINT64] = mpi->uint64,
        [DL_FLOAT32] = mpi->float32,
        [DL_FLOAT64] = mpi->float64,
        [DL_COMPLEX64] = mpi->complex64,
        [DL_COMPLEX128] = mpi->complex128,
    };

    return types[dtype];
}

static dl_mpi_handle
op_of(const dl_mpi_table *mpi, dl_reduce_op op)
{
    const dl_mpi_handle ops[DL_REDUCE_OP_COUNT] = {
        [DL_SUM] = mpi->sum,         [DL_AVG] = mpi->sum, [DL_PREMUL_SUM] = mpi->sum,
        [DL_PRODUCT] = mpi->product, [DL_MIN] = mpi->min, [DL_MAX] = mpi->max,
        [DL_BAND] = mpi->band,       [DL_BOR] = mpi->bor, [DL_BXOR] = mpi->bxor,
    };

    return ops[op];
}

/* The operations of the kernels for bool: any, all, and an odd number of true
 * values. */
static dl_mpi_handle
logical_op_of(const dl_mpi_table *mpi, dl_reduce_op op)
{
    const dl_mpi_handle ops[DL_REDUCE_OP_COUNT] = {
        [DL_SUM] = mpi->lor,   [DL_MAX] = mpi->lor,   [DL_BOR] = mpi->lor,
        [DL_MIN] = mpi->land,  [DL_BAND] = mpi->land, [DL_PRODUCT] = mpi->land,
        [DL_BXOR] = mpi->lxor,
    };

    return ops[op];
}

/* Chooses an operation of our own only where MPI's differs or is wrong, as a library
 * may compute its own ones in hardware. */
static dl_mpi_handle
choose_op(const dl_mpi_world *world, dl_reduce_op op, dl_dtype worked)
{
    bool is_order = op == DL_MIN || op == DL_MAX;

    if (worked == DL_BOOL) {
        return logical_op_of(world->mpi, op);
    }
    if (is_order && worked == DL_FLOAT32) {
        return op == DL_MIN ? world->min_float32 : world->max_float32;
    }
    if (is_order && worked == DL_FLOAT64) {
        return op == DL_MIN ? world->min_float64 : world->max_float64;
    }
    if (is_order && worked == DL_UINT64) {
        return op == DL_MIN ? world->min_uint64 : world->max_uint64;
    }
    return op_of(world->mpi, op);
}

static reduction
reduction_of(const dl_mpi_backend *self, dl_reduce_op op, double factor, dl_dtype dtype)
{
    dl_dtype worked = dl_reduce_dtype(dtype);
    dl_mpi_handle chosen = choose_op(self->comm->world, op, worked);
    bool is_ours = worked != DL_BOOL && chosen != op_of(self->mpi, op);

    return (reduction){
        .op = op,
        .factor = factor,
        .dtype = dtype,
        .worked = worked,
        .item_size = dl_dtype_size(worked),
        .type = type_of(self->mpi, worked),
        .mpi_op = chosen,
        .is_ours = is_ours,
    };
}

/* Returns whether MPI can take the array itself: it is contiguous, aligned
 * and not widened. */
static bool
is_plain(const reduction *how, const dl_tensor *tensor)
{
    return how->worked == how->dtype && tensor->is_contiguous
           && (uintptr_t)tensor->data % how->item_size == 0;
}

/* Copies the array to `target`: contiguous, multiplied by the factor of PREMUL_SUM, and
 * widened; `shorts` has room for it unwidened. */
static void
load_array(const reduction *how, const dl_tensor *tensor, void *target, void *shorts)
{
    bool is_wide = how->worked == how->dtype;
    void *row = is_wide ? target : shorts;

    if (tensor->count == 0) {
        return;
    }
    if (row != tensor->data) {
        dl_strided_gather_part(row, tensor, 0, dl_tensor_size(tensor));
    }
    if (how->op == DL_PREMUL_SUM) {
        dl_reduce_scale(row, how->dtype, row, tensor->count, how->factor);
    }
    if (!is_wide) {
        dl_reduce_widen(target, how->dtype, row, tensor->count);
    }
}

/* Copies a result to the array, for AVG after the division; behind `source` there is
 * room for it unwidened. */
static void
store_array(const reduction *how, const dl_tensor *tensor, void *source, int divisor)
{
    void *row = source;

    if (tensor->count == 0) {
        return;
    }
    if (how->op == DL_AVG) {
        dl_reduce_divide(source, how->worked, tensor->count, divisor);
    }
    if (how->worked != how->dtype) {
        row = (char *)source + tensor->count * how->item_size;
        dl_reduce_narrow(row, how->dtype, source, tensor->count);
    }
    if (row != tensor->data) {
        dl_strided_scatter_part(tensor, row, 0, dl_tensor_size(tensor));
    }
}

/* Makes room for `size` bytes; the contents are lost. */
static dl_status
make_room(dl_buffer *buffer, size_t size)
{
    dl_buffer_clear(buffer);
    return dl_buffer_reserve(buffer, size);
}

/* Reserves room for `count` widened elements, and behind them for the same
 * unwidened. */
static dl_status
reserve_widened(dl_buffer *buffer, const reduction *how, size_t count)
{
    return make_room(buffer, count * (how->item_size + dl_dtype_size(how->dtype)));
}

static size_t
part_size(const dl_mpi_backend *self)
{
    return PART < self->comm->piece ? PART : self->comm->piece;
}

/* Returns whether arrays of `size` bytes are reduced faster in shares. */
static bool
shares_pay(const dl_mpi_backend *self, const reduction *how, size_t size)
{
    return how->is_ours && self->mpi->sends_all && self->size > 1
           && size / (size_t)self->size >= LEAST_SHARE;
}

/* Divides an array into one share for each rank, described by `self->outputs`. */
static void
divide(dl_mpi_backend *self, const reduction *how, const dl_mpi_span *data)
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
receive_part(dl_mpi_backend *self, const step *step, size_t at, dl_mpi_handle *request)
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
fold_part(dl_mpi_backend *self, const step *step, size_t at, dl_mpi_handle *request)
{
    const reduction *how = step->how;
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
send_part(dl_mpi_backend *self, const step *step, size_t at, dl_mpi_handle *request)
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
run_parts(dl_mpi_backend *self, const step *step, dl_mpi_handle coming[2],
          dl_mpi_handle going[2])
{
    size_t out = step->outgoing.size, in = step->folded.size, size = part_size(self);

    DL_TRY(receive_part(self, step, 0, &coming[0]));
    DL_TRY(send_part(self, step, 0, &going[0]));
    for (size_t at = 0; at < (out > in ? out : in); at += size) {
        size_t turn = at / size % 2;
        DL_TRY(receive_part(self, step, at + size, &coming[1 - turn]));
        DL_TRY(send_part(self, step, at + size, &going[1 - turn]));
        DL_TRY(fold_part(self, step, at, &coming[turn]));
        if (at < out) {
            DL_TRY(dl_mpi_finish(self->comm, &going[turn]));
        }
    }
    return DL_OK;
}

static dl_status
run_step(dl_mpi_backend *self, const step *step)
{
    dl_mpi_handle coming[2] = {0, 0}, going[2] = {0, 0};
    dl_status status = run_parts(self, step, coming, going);
    bool is_left = false;

    for (int i = 0; status != DL_OK && i < 2; i++) {
        is_left |= dl_mpi_comm_leave(self->comm, coming[i], true);
        is_left |= dl_mpi_comm_leave(self->comm, going[i], false);
    }
    if (is_left) {
        self->own = (dl_buffer){0}; /* MPI may still use the inboxes */
        dl_backend_keep_memory();
    }
    return status;
}

/* Reduces this rank's share of all arrays into `target`, which may be
 * where its own lies. */
static dl_status
fold_share(dl_mpi_backend *self, const reduction *how, char *target, char *inboxes)
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
        DL_TRY(run_step(self, &step));
    }
    return DL_OK;
}

/* Reduces the `data` of all ranks, in place on all of them, after they have met. */
static dl_status
all_reduce_shares(dl_mpi_backend *self, const reduction *how, const dl_mpi_span *data)
{
    divide(self, how, data);
    DL_TRY(make_room(&self->own, 2 * part_size(self)));
    const dl_mpi_span *own = &self->outputs.spans[self->rank];
    DL_TRY(fold_share(self, how, own->data, (char *)self->own.data));
    for (int rank = 0; rank < self->size; rank++) {
        self->inputs.spans[rank] = *own;
    }
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}

/* Does the same into the root's `data`; the others' stays as it is. */
static dl_status
reduce_shares(dl_mpi_backend *self, const reduction *how, const dl_mpi_span *data,
              int root)
{
    bool is_root = self->rank == root;

    divide(self, how, data);
    dl_mpi_span share = self->outputs.spans[self->rank];
    DL_TRY(make_room(&self->own, 2 * part_size(self) + share.size));
    char *inboxes = (char *)self->own.data;
    if (!is_root) {
        share.data = inboxes + 2 * part_size(self);
    }
    DL_TRY(fold_share(self, how, share.data, inboxes));
    dl_mpi_spans_clear(&self->inputs);
    self->inputs.spans[root] = share;
    if (!is_root) {
        dl_mpi_spans_clear(&self->outputs);
    }
    return dl_mpi_direct(self, self->inputs.spans, self->outputs.spans);
}

/* Reduces the arrays that the first `ranks` ranks contributed to the meeting, from
 * `offset` bytes on, in the order of ranks. */
static void
fold_ranks(dl_mpi_backend *self, const reduction *how, int ranks, void *target,
           size_t offset, size_t count)
{
    dl_reduce_fn kernel = dl_reduce_kernel(how->op, how->worked);

    for (int rank = 0; rank < ranks && count > 0; rank++) {
        const char *theirs = dl_mpi_meeting_array(&self->meeting, rank);
        if (rank == 0) {
            memcpy(target, theirs + offset, count * how->item_size);
        } else {
            kernel(target, target, theirs + offset, count);
        }
    }
}

/* The same for all ranks. */
static void
fold_all_ranks(dl_mpi_backend *self, const reduction *how, void *target, size_t offset,
               size_t count)
{
    fold_ranks(self, how, self->size, target, offset, count);
}

static dl_status
meet_with_array(dl_mpi_backend *self, const dl_op_context *op, const void *data,
                size_t size)
{
    return dl_mpi_meet(&self->meeting, op, &(dl_mpi_contribution){{data, size}, 0});
}

static dl_status
all_reduce_pieces(dl_mpi_backend *self, const dl_op_context *op, const reduction *how,
                  void *data, size_t count)
{
    size_t most = self->comm->piece / how->item_size;

    for (size_t at = 0; at < count; at += most) {
        size_t piece = count - at < most ? count - at : most;
        dl_mpi_part part = {(char *)data + at * how->item_size, (int)piece, how->type};
        int result = self->mpi->allreduce(self->mpi->in_place, &part, how->mpi_op,
                                          self->comm->handle);
        DL_TRY(dl_mpi_called(self, op, result, "MPI_Allreduce"));
    }
    return DL_OK;
}

dl_status
dl_mpi_all_reduce(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    const dl_tensor *tensor = &call->tensor;
    reduction how = reduction_of(self, call->reduction, call->factor, tensor->dtype);
    size_t size = tensor->count * how.item_size;
    void *data = tensor->data;

    if (!is_plain(&how, tensor)) {
        DL_TRY(reserve_widened(&self->staging, &how, tensor->count));
        data = self->staging.data;
    }
    load_array(&how, tensor, data, (char *)data + size);
    if (size <= dl_mpi_meeting_room(&self->meeting)) {
        DL_TRY(meet_with_array(self, op, data, size));
        fold_all_ranks(self, &how, data, 0, tensor->count);
    } else {
        dl_mpi_span all = {data, size};
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(shares_pay(self, &how, size)
                   ? all_reduce_shares(self, &how, &all)
                   : all_reduce_pieces(self, op, &how, data, tensor->count));
    }
    store_array(&how, tensor, data, self->size);
    return DL_OK;
}

/* Works in place if `input` is NULL. */
static dl_status
scan_pieces(dl_mpi_backend *self, const dl_op_context *op, const reduction *how,
            const char *input, const dl_mpi_span *data)
{
    bool is_exclusive = op->fingerprint.op == DL_EXSCAN;
    size_t most = self->comm->piece - self->comm->piece % how->item_size;

    for (size_t at = 0; at < data->size; at += most) {
        size_t size = data->size - at < most ? data->size - at : most;
        dl_mpi_part part = {data->data + at, (int)(size / how->item_size), how->type};
        const void *from = input == NULL ? self->mpi->in_place : input + at;
        int result =
            is_exclusive
                ? self->mpi->exscan(from, &part, how->mpi_op, self->comm->handle)
                : self->mpi->scan(from, &part, how->mpi_op, self->comm->handle);
        DL_TRY(
            dl_mpi_called(self, op, result, is_exclusive ? "MPI_Exscan" : "MPI_Scan"));
    }
    return DL_OK;
}

/* MPI leaves the first rank's result of an exscan undefined; that rank keeps its array
 * and has the result elsewhere. */
dl_status
dl_mpi_scan(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    const dl_tensor *tensor = &call->tensor;
    reduction how = reduction_of(self, call->reduction, call->factor, tensor->dtype);
    dl_mpi_span data = {tensor->data, tensor->count * how.item_size};
    bool is_kept = call->op == DL_EXSCAN && self->rank == 0;
    bool is_small = data.size <= dl_mpi_meeting_room(&self->meeting);
    bool is_read =
        is_kept && !is_small && is_plain(&how, tensor) && how.op != DL_PREMUL_SUM;

    if (is_kept || !is_plain(&how, tensor)) {
        DL_TRY(reserve_widened(&self->staging, &how, tensor->count));
        data.data = (char *)self->staging.data;
    }
    if (!is_read) {
        load_array(&how, tensor, data.data, data.data + data.size);
    }
    if (is_small) {
        DL_TRY(meet_with_array(self, op, data.data, data.size));
        fold_ranks(self, &how, self->rank + (call->op == DL_EXSCAN ? 0 : 1), data.data,
                   0, tensor->count);
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(scan_pieces(self, op, &how, is_read ? tensor->data : NULL, &data));
    }
    if (!is_kept) {
        store_array(&how, tensor, data.data, self->size);
    }
    return DL_OK;
}

/* Sets `*input` to what MPI_Reduce reads of a piece.  On a root other than 0 that is a
 * copy: MPICH 4.0 crashes in place there. */
static dl_status
piece_input(dl_mpi_backend *self, const dl_mpi_span *piece, int root,
            const void **input)
{
    *input = self->rank == root ? self->mpi->in_place : piece->data;
    if (self->rank == root && root != 0) {
        DL_TRY(make_room(&self->own, piece->size));
        dl_copy(self->own.data, piece->data, piece->size);
        *input = self->own.data;
    }
    return DL_OK;
}

static dl_status
reduce_pieces(dl_mpi_backend *self, const dl_op_context *op, const reduction *how,
              const dl_mpi_span *data, int root)
{
    for (size_t at = 0; at < data->size; at += self->comm->piece) {
        size_t left = data->size - at;
        dl_mpi_span piece = {data->data + at,
                             left < self->comm->piece ? left : self->comm->piece};
        dl_mpi_part part = {self->rank == root ? piece.data : NULL,
                            (int)(piece.size / how->item_size), how->type};
        const void *input;
        DL_TRY(piece_input(self, &piece, root, &input));
        int result =
            self->mpi->reduce(input, &part, how->mpi_op, root, self->comm->handle);
        DL_TRY(dl_mpi_called(self, op, result, "MPI_Reduce"));
    }
    return DL_OK;
}

/* The arrays of ranks other than the root stay as they are. */
dl_status
dl_mpi_reduce(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    const dl_tensor *tensor = &call->tensor;
    reduction how = reduction_of(self, call->reduction, call->factor, tensor->dtype);
    bool is_root = self->rank == call->root;
    dl_mpi_span data = {tensor->data, tensor->count * how.item_size};

    if (!is_plain(&how, tensor) || (!is_root && call->reduction == DL_PREMUL_SUM)) {
        DL_TRY(reserve_widened(&self->staging, &how, tensor->count));
        data.data = (char *)self->staging.data;
    }
    load_array(&how, tensor, data.data, data.data + data.size);
    if (data.size <= dl_mpi_meeting_room(&self->meeting)) {
        DL_TRY(dl_mpi_tree_up(&self->meeting, op, call->root,
                              (dl_bytes){(const uint8_t *)data.data, data.size}));
        if (is_root) {
            fold_all_ranks(self, &how, data.data, 0, tensor->count);
        }
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(shares_pay(self, &how, data.size)
                   ? reduce_shares(self, &how, &data, call->root)
                   : reduce_pieces(self, op, &how, &data, call->root));
    }
    if (is_root) {
        store_array(&how, tensor, data.data, self->size);
    }
    return DL_OK;
}

/* Chooses where this rank's result is computed: not in an input, which
 * MPI may still read. */
static dl_status
place_output(dl_mpi_backend *self, const reduction *how, const dl_tensor *output,
             void **data)
{
    const char *begin = self->inputs.spans[0].data;
    const char *own = output->data;
    bool is_input = own >= begin && own < begin + self->inputs.size;

    *data = output->data;
    if (is_input || !is_plain(how, output)) {
        DL_TRY(reserve_widened(&self->outputs.copy, how, output->count));
        *data = self->outputs.copy.data;
    }
    return DL_OK;
}

/* Makes all blocks contiguous and describes them in `self->inputs`, with their
 * sizes after widening. */
static dl_status
place_inputs(dl_mpi_backend *self, const reduction *how, const dl_call *call)
{
    dl_mpi_spans *inputs = &self->inputs;
    bool is_exact = how->worked == how->dtype && call->reduction != DL_PREMUL_SUM;
    size_t widening = how->item_size / dl_dtype_size(how->dtype);
    size_t at = 0;

    DL_TRY(dl_mpi_spans_place(inputs, call->inputs, DL_MPI_CONTIGUOUS));
    if (is_exact && (uintptr_t)inputs->spans[0].data % how->item_size == 0) {
        dl_mpi_spans_read(inputs, call->inputs);
        return DL_OK;
    }
    DL_TRY(make_room(&self->staging, inputs->size * widening + inputs->largest));
    char *shorts = (char *)self->staging.data + inputs->size * widening;
    for (int rank = 0; rank < self->size; rank++) {
        dl_mpi_span *span = &inputs->spans[rank];
        span->data = (char *)self->staging.data + at;
        span->size *= widening;
        at += span->size;
        load_array(how, &call->inputs[rank], span->data, shorts);
    }
    inputs->size = at;
    return DL_OK;
}

static dl_status
reduce_scatter_at_once(dl_mpi_backend *self, const dl_op_context *op,
                       const reduction *how, void *data)
{
    const dl_mpi_spans *inputs = &self->inputs;

    for (int rank = 0; rank < self->size; rank++) {
        self->counts[rank] = (int)(inputs->spans[rank].size / how->item_size);
    }
    if (inputs->is_even) {
        dl_mpi_part part = {data, self->counts[0], how->type};
        int result = self->mpi->reduce_scatter_block(inputs->spans[0].data, &part,
                                                     how->mpi_op, self->comm->handle);
        return dl_mpi_called(self, op, result, "MPI_Reduce_scatter_block");
    }
    dl_mpi_parts parts = {data, self->counts, NULL, how->type};
    int result = self->mpi->reduce_scatter(inputs->spans[0].data, &parts, how->mpi_op,
                                           self->comm->handle);
    return dl_mpi_called(self, op, result, "MPI_Reduce_scatter");
}

/* Reduces each block to its rank, where all blocks together exceed one call of MPI. */
static dl_status
reduce_each(dl_mpi_backend *self, const dl_op_context *op, const reduction *how,
            void *data)
{
    for (int rank = 0; rank < self->size; rank++) {
        dl_mpi_span span = self->inputs.spans[rank];
        if (rank == self->rank && span.size > 0) {
            memcpy(data, span.data, span.size);
            span.data = data;
        }
        DL_TRY(reduce_pieces(self, op, how, &span, rank));
    }
    return DL_OK;
}

dl_status
dl_mpi_reduce_scatter(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    reduction how =
        reduction_of(self, call->reduction, call->factor, call->tensor.dtype);
    dl_mpi_spans *inputs = &self->inputs;
    void *data;

    DL_TRY(place_inputs(self, &how, call));
    DL_TRY(place_output(self, &how, &call->tensor, &data));
    if (inputs->size <= dl_mpi_meeting_room(&self->meeting)) {
        const dl_mpi_span *own = &inputs->spans[self->rank];
        DL_TRY(meet_with_array(self, op, inputs->spans[0].data, inputs->size));
        fold_all_ranks(self, &how, data, (size_t)(own->data - inputs->spans[0].data),
                       call->tensor.count);
    } else {
        DL_TRY(dl_mpi_meet_empty(self, op));
        DL_TRY(inputs->size > self->comm->piece
                   ? reduce_each(self, op, &how, data)
                   : reduce_scatter_at_once(self, op, &how, data));
    }
    store_array(&how, &call->tensor, data, self->size);
    return DL_OK;
}
