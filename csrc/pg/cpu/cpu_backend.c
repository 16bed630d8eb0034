/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_backend.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/shm/join.h"
#include "tensor/strided.h"

typedef struct cpu_backend {
    dl_backend base;
    /* fixed after init */
    char *group_name;
    uint32_t fork_generation;
    int size;
    dl_endpoint endpoint;
    dl_membership membership;
    /* the thread that is in an operation only; abort and leave lock for themselves */
    dl_board board;
    dl_buffer staging; /* an array without its gaps */
} cpu_backend;

static cpu_backend *
self_of(dl_backend *backend)
{
    return (cpu_backend *)(void *)backend;
}

/* Algorithms take one run of aligned elements; anything else goes through a copy. */
static bool
is_plain(const dl_tensor *tensor)
{
    size_t alignment = dl_dtype_size(tensor->dtype);

    return tensor->is_contiguous
           && (alignment < 2 || (uintptr_t)tensor->data % alignment == 0);
}

/* `*plain` is `tensor` with its elements in a row. */
static dl_status
flatten(cpu_backend *self, const dl_tensor *tensor, bool is_read, dl_tensor *plain)
{
    size_t size = dl_tensor_size(tensor);

    *plain = *tensor;
    if (is_plain(tensor)) {
        return DL_OK;
    }
    dl_buffer_clear(&self->staging);
    DL_TRY(dl_buffer_reserve(&self->staging, size));
    plain->data = self->staging.data;
    plain->is_contiguous = true;
    if (is_read) {
        dl_strided_gather(plain->data, tensor);
    }
    return DL_OK;
}

static void
unflatten(const dl_tensor *tensor, const dl_tensor *plain)
{
    if (plain->data != tensor->data) {
        dl_strided_scatter(tensor, plain->data);
    }
}

/* Whoever fails tells the others. */
static dl_status
end(cpu_backend *self, dl_status status)
{
    if (status != DL_OK) {
        dl_board_break(&self->board);
    }
    return status;
}

static dl_status
all_reduce(dl_backend *backend, const dl_op_context *op, const dl_all_reduce_args *args)
{
    cpu_backend *self = self_of(backend);
    dl_all_reduce_args plain = *args;

    if (self->size == 1) {
        return DL_OK;
    }
    dl_status status = flatten(self, &args->tensor, true, &plain.tensor);
    if (status == DL_OK) {
        status = dl_all_reduce_select(&self->board, op, &plain);
    }
    if (status == DL_OK) {
        unflatten(&args->tensor, &plain.tensor);
    }
    return end(self, status);
}

static dl_status
broadcast(dl_backend *backend, const dl_op_context *op, const dl_broadcast_args *args)
{
    cpu_backend *self = self_of(backend);
    bool is_root = self->endpoint.rank == args->root;
    dl_broadcast_args plain = *args;

    if (self->size == 1) {
        return DL_OK;
    }
    dl_status status = flatten(self, &args->tensor, is_root, &plain.tensor);
    if (status == DL_OK) {
        status = dl_broadcast_select(&self->board, op, &plain);
    }
    if (status == DL_OK && !is_root) {
        unflatten(&args->tensor, &plain.tensor);
    }
    return end(self, status);
}

static dl_status
barrier(dl_backend *backend, const dl_op_context *op)
{
    cpu_backend *self = self_of(backend);

    return self->size == 1 ? DL_OK : end(self, dl_barrier_line(&self->board, op));
}

static void
abort_backend(dl_backend *backend, const dl_error *cause)
{
    cpu_backend *self = self_of(backend);

    if (self->size > 1) {
        dl_board_abort(&self->board, cause);
    }
}

static void
leave_backend(dl_backend *backend)
{
    cpu_backend *self = self_of(backend);

    if (self->size > 1) {
        dl_board_leave(&self->board);
    }
}

static void
free_backend(dl_backend *backend)
{
    cpu_backend *self = self_of(backend);

    if (self->fork_generation != dl_fork_generation()) {
        dl_membership_forget(&self->membership);
    }
    dl_board_fini(&self->board);
    dl_membership_fini(&self->membership);
    dl_endpoint_fini(&self->endpoint);
    dl_buffer_fini(&self->staging);
    free(self->group_name);
    free(self);
}

static const dl_backend_ops cpu_ops = {
    .name = "cpu",
    .all_reduce = all_reduce,
    .broadcast = broadcast,
    .barrier = barrier,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

static dl_status
join(cpu_backend *self, const dl_backend_options *options, dl_deadline deadline)
{
    dl_join work = {&self->endpoint, options, deadline};

    DL_TRY(dl_endpoint_open(&self->endpoint, options, deadline));
    dl_status status = dl_join_run(&work, &self->membership);
    dl_endpoint_hush(&self->endpoint);
    DL_TRY(status);
    dl_board_options board = {
        .rank = options->rank,
        .size = options->size,
        .group_name = self->group_name,
        .peers = self->endpoint.peers,
        .lifelines = &self->membership.lifelines,
    };
    return dl_board_init(&self->board, &board, self->membership.segment.memory,
                         self->membership.segment.size);
}

dl_status
dl_cpu_backend_new(const dl_backend_options *options, dl_deadline deadline,
                   dl_backend **backend)
{
    cpu_backend *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base.ops = &cpu_ops;
    self->size = options->size;
    self->fork_generation = dl_fork_generation();
    self->group_name = strdup(options->group_name);
    dl_status status = self->group_name == NULL ? dl_fail_no_memory() : DL_OK;
    if (status == DL_OK && options->size > 1) {
        status = join(self, options, deadline);
    }
    if (status != DL_OK) {
        free_backend(&self->base);
        return status;
    }
    *backend = &self->base;
    return DL_OK;
}
