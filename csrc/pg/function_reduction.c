/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/function_reduction.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/strided.h"

/* If the arrays of all ranks have at most this many bytes together, every rank gets all
 * of them, which is one exchange instead of two.  On one host a second exchange soon takes
 * less time than to combine the whole on every rank; between hosts it is another round
 * trip. */
#define SMALL_ON_HOST ((size_t)2 * 1024)
#define SMALL_BETWEEN_HOSTS ((size_t)64 * 1024)

/* Bytes of a share for which a second exchange does not pay on one host: with many ranks,
 * shares of unequal sizes cost each rank a look at the sizes of all. */
#define SMALL_SHARE ((size_t)16)

#define NEAR_RANKS 8
#define NEAR_BYTES 1024

/* The result of a rank's reducer after it has combined all blocks. */
typedef struct report {
    dl_status status;
    char text[508];
} report;

typedef struct reduction {
    dl_function_reduction *asked;
    dl_op_context context; /* of the exchange that comes next */
    bool has_exchanged;
    const dl_reducer *reducer;
    int rank;
    int size;
    /* What was combined on this rank: block r holds the prefix that ends with rank r. */
    uint8_t *blocks; /* `near`, or of malloc() */
    size_t block_size;
    report *reports;   /* if some rank has failed */
    dl_tensor *inputs; /* of the exchange that comes next, like the outputs */
    dl_tensor *outputs;
    /* Memory for few ranks and small arrays. */
    dl_tensor near_tensors[2 * NEAR_RANKS];
    _Alignas(max_align_t) uint8_t near[NEAR_BYTES];
} reduction;

/* A reduction of one array in place. */
typedef struct in_place {
    const dl_tensor *tensor;
    dl_op_type op;
    int root;
    bool receives; /* this rank gets a result */
} in_place;

/* Fails before an exchange that the other ranks begin, and aborts the backend so that
 * they do not wait for this rank. */
static dl_status
fail_alone(reduction *self)
{
    dl_backend *backend = self->asked->backend;
    dl_error error = *dl_last_error();

    backend->ops->abort(backend, &error);
    return dl_rethrow(&error);
}

static uint8_t *
memory_of_rank(const reduction *self, int rank)
{
    return self->blocks + (size_t)rank * self->block_size;
}

/* Returns contiguous memory as an array like `tensor`, for an exchange. */
static dl_tensor
memory_like(const dl_tensor *tensor, void *data, size_t size)
{
    return (dl_tensor){.data = data,
                       .count = size / tensor->item_size,
                       .item_size = tensor->item_size,
                       .dtype = tensor->dtype,
                       .opaque_code = tensor->opaque_code,
                       .is_contiguous = true,
                       .is_writable = true};
}

static void
begin_exchange(reduction *self)
{
    if (self->has_exchanged) {
        self->context.sequence++;
        atomic_store_explicit(self->asked->sequence, self->context.sequence,
                              memory_order_relaxed);
    }
    self->has_exchanged = true;
}

/* Gathers the first input of all ranks in their outputs. */
static dl_status
gather_blocks(reduction *self)
{
    dl_backend *backend = self->asked->backend;
    dl_call call = dl_call_all_gather(self->inputs, self->outputs);

    begin_exchange(self);
    return dl_backend_run(backend, &self->context, &call);
}

static dl_status
exchange_blocks(reduction *self)
{
    dl_backend *backend = self->asked->backend;
    dl_call call = {
        .op = DL_ALL_TO_ALL, .inputs = self->inputs, .outputs = self->outputs};

    begin_exchange(self);
    return dl_backend_run(backend, &self->context, &call);
}

static dl_status
allocate_blocks(reduction *self, size_t block_size)
{
    size_t size = block_size * (size_t)self->size;

    self->block_size = block_size;
    self->blocks = size <= NEAR_BYTES ? self->near : malloc(size);
    return self->blocks == NULL ? dl_fail_no_memory() : DL_OK;
}

/* Replaces each block by the prefix that ends with it. */
static dl_status
combine_blocks(reduction *self)
{
    size_t count = self->block_size / self->reducer->unit;

    for (int rank = 1; rank < self->size && count > 0; rank++) {
        DL_TRY(self->reducer->combine(self->reducer, memory_of_rank(self, rank - 1),
                                      memory_of_rank(self, rank), count));
    }
    return DL_OK;
}

static dl_status
fail_alike(reduction *self, int rank)
{
    const report *theirs = &self->reports[rank];

    self->asked->has_failed_alike = true;
    return dl_fail(DL_BACKEND, "%s with %s failed on rank %d: %.*s",
                   dl_op_type_name(self->context.fingerprint.op), self->reducer->name,
                   rank, (int)sizeof theirs->text - 1, theirs->text);
}

/* Exchanges the ranks' statuses, and returns whether any rank has failed. */
static dl_status
compare_statuses(reduction *self, dl_status status, bool *has_failed)
{
    dl_backend *backend = self->asked->backend;
    int32_t value = status != DL_OK;
    dl_tensor tensor = {.data = &value,
                        .count = 1,
                        .item_size = sizeof value,
                        .dtype = DL_INT32,
                        .is_contiguous = true,
                        .is_writable = true};
    dl_call call = dl_call_all_reduce(&tensor, DL_MAX);

    begin_exchange(self);
    DL_TRY(dl_backend_run(backend, &self->context, &call));
    *has_failed = value != 0;
    return DL_OK;
}

/* Exchanges whether each rank has combined its blocks; fails with the error of the
 * first rank that has not. */
static dl_status
compare_reports(reduction *self, dl_status status)
{
    dl_error error = *dl_last_error();
    bool has_failed;

    DL_TRY(compare_statuses(self, status, &has_failed));
    if (!has_failed) {
        return DL_OK;
    }
    self->reports = calloc((size_t)self->size, sizeof *self->reports);
    if (self->reports == NULL) {
        (void)dl_fail_no_memory();
        return fail_alone(self);
    }
    report *own = &self->reports[self->rank];
    own->status = status;
    snprintf(own->text, sizeof own->text, "%.507s", status == DL_OK ? "" : error.text);
    self->inputs[0] = dl_tensor_of_bytes(own, sizeof *own);
    for (int rank = 0; rank < self->size; rank++) {
        self->outputs[rank] =
            dl_tensor_of_bytes(&self->reports[rank], sizeof *self->reports);
    }
    DL_TRY(gather_blocks(self));
    for (int rank = 0; rank < self->size; rank++) {
        if (self->reports[rank].status != DL_OK) {
            return fail_alike(self, rank);
        }
    }
    return DL_OK;
}

static dl_status
combine_parts(reduction *self)
{
    DL_TRY(dl_op_check_arrays(&self->context));
    dl_status status = combine_blocks(self);

    return self->reducer->may_fail ? compare_reports(self, status) : status;
}

/* Returns the block that is `rank`'s result. */
static uint8_t *
result_of(const reduction *self, const in_place *call, int rank)
{
    switch (call->op) {
    case DL_SCAN:
        return memory_of_rank(self, rank);
    case DL_EXSCAN:
        return memory_of_rank(self, rank > 0 ? rank - 1 : 0);
    default:
        return memory_of_rank(self, self->size - 1);
    }
}

static dl_status
run_small(reduction *self, const in_place *call)
{
    size_t size = dl_tensor_size(call->tensor);

    if (allocate_blocks(self, size) != DL_OK) {
        return fail_alone(self);
    }
    uint8_t *own = memory_of_rank(self, self->rank);
    dl_strided_gather_part(own, call->tensor, 0, size);
    self->inputs[0] = memory_like(call->tensor, own, size);
    for (int rank = 0; rank < self->size; rank++) {
        self->outputs[rank] =
            memory_like(call->tensor, memory_of_rank(self, rank), size);
    }
    DL_TRY(gather_blocks(self));
    DL_TRY(combine_parts(self));
    DL_TRY(dl_op_check_arrays(&self->context));
    if (call->receives) {
        dl_strided_scatter_part(call->tensor, result_of(self, call, self->rank), 0,
                                size);
    }
    return DL_OK;
}

/* Returns the byte at which a rank's share of the array begins. */
static size_t
share_start(const reduction *self, size_t size, int rank)
{
    size_t units = size / self->reducer->unit;
    size_t each = units / (size_t)self->size;
    size_t more = units % (size_t)self->size;
    size_t before = (size_t)rank < more ? (size_t)rank : more;

    return (each * (size_t)rank + before) * self->reducer->unit;
}

static dl_tensor
share_like(const reduction *self, const dl_tensor *tensor, uint8_t *data, int rank)
{
    size_t size = dl_tensor_size(tensor);
    size_t start = share_start(self, size, rank);

    return memory_like(tensor, data + start, share_start(self, size, rank + 1) - start);
}

/* Sends each rank its share of the array in `data`, and combines this rank's. */
static dl_status
combine_share(reduction *self, const in_place *call, uint8_t *data)
{
    for (int rank = 0; rank < self->size; rank++) {
        self->inputs[rank] = share_like(self, call->tensor, data, rank);
        self->outputs[rank] =
            memory_like(call->tensor, memory_of_rank(self, rank), self->block_size);
    }
    DL_TRY(exchange_blocks(self));
    return combine_parts(self);
}

/* Puts the results of all shares together in `data`, on the ranks that get any. */
static dl_status
collect_shares(reduction *self, const in_place *call, uint8_t *data)
{
    for (int rank = 0; rank < self->size; rank++) {
        bool sends = call->op != DL_REDUCE || rank == call->root;
        bool receives = call->op != DL_REDUCE || self->rank == call->root;
        self->inputs[rank] = memory_like(call->tensor, result_of(self, call, rank),
                                         sends ? self->block_size : 0);
        self->outputs[rank] = share_like(self, call->tensor, data, rank);
        self->outputs[rank].count = receives ? self->outputs[rank].count : 0;
    }
    return call->op == DL_ALL_REDUCE ? gather_blocks(self) : exchange_blocks(self);
}

static dl_status
run_large(reduction *self, const in_place *call)
{
    size_t size = dl_tensor_size(call->tensor);
    size_t share =
        share_start(self, size, self->rank + 1) - share_start(self, size, self->rank);
    bool is_direct =
        call->tensor->is_contiguous && (call->receives || call->op == DL_REDUCE);
    uint8_t *staging = is_direct ? NULL : malloc(size);
    uint8_t *data = is_direct ? call->tensor->data : staging;

    if (data == NULL || allocate_blocks(self, share) != DL_OK) {
        free(staging);
        (void)dl_fail_no_memory();
        return fail_alone(self);
    }
    if (!is_direct) {
        dl_strided_gather_part(staging, call->tensor, 0, size);
    }
    dl_status status = combine_share(self, call, data);
    if (status == DL_OK) {
        status = collect_shares(self, call, data);
    }
    if (status == DL_OK) {
        status = dl_op_check_arrays(&self->context);
    }
    if (status == DL_OK && !is_direct && call->receives) {
        dl_strided_scatter_part(call->tensor, staging, 0, size);
    }
    free(staging);
    return status;
}

static dl_status
run_in_place(reduction *self, const in_place *call)
{
    size_t size = dl_tensor_size(call->tensor);
    size_t ranks = (size_t)self->size;

    if (self->size == 1) {
        return DL_OK;
    }
    bool is_small = self->asked->backend->spans_hosts
                        ? size <= SMALL_BETWEEN_HOSTS / ranks
                        : size <= SMALL_ON_HOST / ranks || size <= SMALL_SHARE * ranks;
    return is_small ? run_small(self, call) : run_large(self, call);
}

static dl_status
run_reduce_scatter(reduction *self, const dl_call *call)
{
    const dl_tensor *output = &call->tensor;
    size_t size = dl_tensor_size(output);

    if (self->size == 1) {
        dl_strided_copy_part(output, call->inputs, 0, size);
        return DL_OK;
    }
    if (allocate_blocks(self, size) != DL_OK) {
        return fail_alone(self);
    }
    for (int rank = 0; rank < self->size; rank++) {
        self->inputs[rank] = call->inputs[rank];
        self->outputs[rank] = memory_like(output, memory_of_rank(self, rank), size);
    }
    DL_TRY(exchange_blocks(self));
    DL_TRY(combine_parts(self));
    DL_TRY(dl_op_check_arrays(&self->context));
    dl_strided_scatter_part(output, memory_of_rank(self, self->size - 1), 0, size);
    return DL_OK;
}

static dl_status
run_reduction(reduction *self, const dl_call *call)
{
    dl_op_type op = call->op;

    if (op == DL_REDUCE_SCATTER) {
        return run_reduce_scatter(self, call);
    }
    bool receives = op == DL_REDUCE   ? self->rank == call->root
                    : op == DL_EXSCAN ? self->rank > 0
                                      : true;
    return run_in_place(self, &(in_place){.tensor = &call->tensor,
                                          .op = op,
                                          .root = call->root,
                                          .receives = receives});
}

dl_status
dl_function_reduction_run(dl_function_reduction *self, const dl_call *call)
{
    const dl_backend_ops *ops = self->backend->ops;
    size_t size = (size_t)self->size;

    if (ops->is_alone) {
        return DL_OK;
    }
    if (ops->collectives[DL_ALL_REDUCE] == NULL
        || ops->collectives[DL_ALL_GATHER] == NULL
        || ops->collectives[DL_ALL_TO_ALL] == NULL) {
        return dl_fail(DL_UNSUPPORTED, "the %s backend has no reductions by a function",
                       ops->name);
    }
    reduction made;
    memset(&made, 0, offsetof(reduction, near_tensors));
    made.asked = self;
    made.context = *self->context;
    made.reducer = call->reducer;
    made.rank = self->rank;
    made.size = self->size;
    made.inputs =
        size <= NEAR_RANKS ? made.near_tensors : malloc(2 * size * sizeof *made.inputs);
    dl_status status;
    if (made.inputs == NULL) {
        (void)dl_fail_no_memory();
        status = fail_alone(&made);
    } else {
        made.outputs = made.inputs + size;
        status = run_reduction(&made, call);
    }
    if (made.inputs != made.near_tensors) {
        free(made.inputs);
    }
    if (made.blocks != made.near) {
        free(made.blocks);
    }
    free(made.reports);
    return status;
}
