/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_backend.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pg/cpu/cpu_state.h"
#include "pg/cpu/shm/verdict.h"

static void
abort_backend(dl_backend *backend, const dl_error *cause)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (self->size > 1) {
        dl_board_abort(&self->board, cause);
        dl_p2p_abort(self->p2p, cause);
    }
}

static void
leave_backend(dl_backend *backend)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (self->size > 1) {
        dl_board_leave(&self->board);
    }
}

static void
free_backend(dl_backend *backend)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    dl_p2p_close(self->p2p);
    if (self->fork_generation != dl_fork_generation()) {
        dl_membership_forget(&self->membership);
    }
    dl_exchange_fini(&self->exchange);
    dl_board_fini(&self->board);
    dl_membership_fini(&self->membership);
    dl_endpoint_fini(&self->endpoint);
    dl_buffer_fini(&self->staging);
    free(self->group_name);
    free(self);
}

static dl_status
post(dl_backend *backend, dl_op_type op, const dl_message_args *args,
     dl_deadline deadline, dl_work **work)
{
    return dl_p2p_post(dl_cpu_self(backend)->p2p, op, args, deadline, work);
}

static dl_status
watch(dl_backend *backend, int rank)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    return self->size == 1 ? DL_OK : dl_verdict_watch(&self->board, rank);
}

static const dl_backend_ops cpu_ops = {
    .name = "cpu",
    .all_reduce = dl_cpu_all_reduce,
    .broadcast = dl_cpu_broadcast,
    .barrier = dl_cpu_barrier,
    .reduce = dl_cpu_reduce,
    .all_gather = dl_cpu_all_gather,
    .gather = dl_cpu_gather,
    .scatter = dl_cpu_scatter,
    .reduce_scatter = dl_cpu_reduce_scatter,
    .all_to_all = dl_cpu_all_to_all,
    .post = post,
    .watch = watch,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

/* Behind the board. */
static dl_status
open_messages(dl_cpu_backend *self)
{
    const dl_segment *segment = &self->membership.segment;
    size_t offset = dl_board_memory(self->size, DL_BOARD_CHUNK);

    if (segment->size < offset + dl_p2p_memory(self->size)) {
        return dl_fail(DL_PROTOCOL,
                       "the shared memory of group %s has no room for messages: the "
                       "ranks run different versions of distlite",
                       self->group_name);
    }
    return dl_p2p_new(&self->board, (char *)segment->memory + offset, &self->p2p);
}

static dl_status
join(dl_cpu_backend *self, const dl_backend_options *options, dl_deadline deadline)
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
    DL_TRY(dl_board_init(&self->board, &board, self->membership.segment.memory,
                         self->membership.segment.size));
    DL_TRY(dl_exchange_init(&self->exchange, &self->board));
    return open_messages(self);
}

dl_status
dl_cpu_backend_new(const dl_backend_options *options, dl_deadline deadline,
                   dl_backend **backend)
{
    dl_cpu_backend *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base.ops = &cpu_ops;
    self->rank = options->rank;
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
