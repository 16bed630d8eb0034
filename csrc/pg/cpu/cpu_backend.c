/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_backend.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pg/cpu/announce.h"
#include "pg/cpu/cpu_state.h"
#include "pg/cpu/shm/verdict.h"

/* Bytes of all ranks that are copied in a microsecond or two.  The waits of a board
 * tell. */
#define BRIEF ((size_t)16 << 10)

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

/* In a forked child the loan is the parent's. */
static void
give_back(dl_cpu_backend *self)
{
    if (self->fork_generation == dl_fork_generation()) {
        dl_arena_return(&self->roster->membership.arena, &self->loan);
    }
}

static void
free_backend(dl_backend *backend)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    dl_p2p_close(self->p2p);
    dl_exchange_fini(&self->exchange);
    dl_board_fini(&self->board);
    dl_shared_views_fini(&self->views);
    if (self->roster != NULL) {
        give_back(self);
        dl_backend_origin_unref(&self->roster->base);
    }
    dl_buffer_fini(&self->staging);
    free(self->peers);
    free(self->origin_ranks);
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

static dl_status
share(dl_backend *backend, size_t size, dl_region **region)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    return self->size == 1
               ? dl_region_new(size, region)
               : dl_shared_new(&self->roster->membership.arena, size, region);
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
    .share = share,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

/* Board and messages, one behind the other. */
static dl_status
open_memory(dl_cpu_backend *self, const dl_segment *segment)
{
    dl_board_options options = {
        .rank = self->rank,
        .size = self->size,
        .group_name = self->group_name,
        .peers = self->peers == NULL ? self->roster->endpoint.peers : self->peers,
        .lifelines = &self->roster->membership.lifelines,
        .lifeline_ranks = self->origin_ranks,
        .views = &self->views,
    };
    size_t offset = dl_board_memory(self->size, DL_BOARD_CHUNK);

    DL_TRY(dl_shared_views_init(&self->views, &self->roster->membership.arena,
                                self->size));
    DL_TRY(dl_board_init(&self->board, &options, segment->memory, segment->size));
    DL_TRY(dl_exchange_init(&self->exchange, &self->board));
    return dl_p2p_new(&self->board, (char *)segment->memory + offset, &self->p2p);
}

static dl_status
meet(dl_cpu_backend *self, const dl_backend_options *options, dl_deadline deadline)
{
    DL_TRY(dl_roster_new(options, deadline, &self->roster));
    self->base.origin = &self->roster->base;
    return open_memory(self, &self->roster->membership.arena.home);
}

/* Ranks and who they are, out of the roster. */
static dl_status
copy_members(dl_cpu_backend *self, const dl_backend_options *options)
{
    size_t count = (size_t)self->size;

    self->origin_ranks = malloc(count * sizeof *self->origin_ranks);
    self->peers = malloc(count * sizeof *self->peers);
    if (self->origin_ranks == NULL || self->peers == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < self->size; rank++) {
        self->origin_ranks[rank] = options->origin_ranks[rank];
        self->peers[rank] = self->roster->endpoint.peers[options->origin_ranks[rank]];
    }
    return DL_OK;
}

/* Without meeting anybody. */
static dl_status
derive(dl_cpu_backend *self, const dl_backend_options *options, dl_deadline deadline)
{
    self->roster = (dl_roster *)(void *)dl_backend_origin_ref(options->origin);
    self->base.origin = options->origin;
    DL_TRY(copy_members(self, options));
    self->base.origin_ranks = self->origin_ranks;
    dl_borrower borrower = {
        .rank = self->roster->endpoint.rank,
        .name = self->group_name,
        .ranks = self->origin_ranks,
        .count = self->size,
        .lifelines = &self->roster->membership.lifelines,
    };
    DL_TRY(dl_arena_borrow(&self->roster->membership.arena, &borrower, deadline,
                           &self->loan));
    return open_memory(self, &self->loan.segment);
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
        status = options->origin == NULL ? meet(self, options, deadline)
                                         : derive(self, options, deadline);
    }
    if (status != DL_OK) {
        free_backend(&self->base);
        return status;
    }
    self->base.brief = BRIEF / (size_t)self->size;
    dl_announce_join(options, options->size > 1 ? self->board.options.peers : NULL);
    *backend = &self->base;
    return DL_OK;
}
