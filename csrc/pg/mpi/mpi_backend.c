/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/cpu/cpu_backend.h"
#include "pg/mpi/mpi_members.h"
#include "pg/mpi/mpi_message.h"
#include "pg/mpi/mpi_state.h"

/* Operations on fewer bytes mostly end within a few microseconds; those that may take
 * longer announce it with dl_blocking_begin(). */
#define BRIEF ((size_t)8192)

static void
abort_backend(dl_backend *backend, const dl_error *cause)
{
    dl_mpi_comm *comm = dl_mpi_self(backend)->comm;

    dl_mpi_comm_abort(comm, cause);
    if (cause->status == DL_CANCELLED) {
        dl_mpi_notice_send_failure(comm, cause);
    }
}

/* MPI has no message for an orderly exit: peers that wait for this rank do so until
 * their deadlines. */
static void
leave_backend(dl_backend *backend)
{
    (void)backend;
}

static void
free_backend(dl_backend *backend)
{
    dl_mpi_backend *self = dl_mpi_self(backend);

    if (self->comm != NULL) {
        dl_mpi_notice_drop(self->comm);
    }
    dl_buffer_fini(&self->staging);
    dl_buffer_fini(&self->inbox);
    free(self->cards);
    free(self->pending);
    free(self->heard);
    dl_mpi_comm_unref(self->comm);
    free(self);
}

static dl_status
post_message(dl_backend *backend, const dl_call *call, dl_deadline deadline,
             dl_work **work)
{
    return dl_mpi_post(dl_mpi_self(backend)->comm, call, deadline, work);
}

static dl_status
check_lost(dl_backend *backend, int rank)
{
    return dl_mpi_comm_lost(dl_mpi_self(backend)->comm, rank);
}

static void
note_loss(dl_backend *backend)
{
    (void)backend;
    dl_mpi_world_skip_finalize();
}

static dl_mpi_run_fn *const runs[DL_OP_TYPE_COUNT] = {
    [DL_ALL_REDUCE] = dl_mpi_all_reduce, [DL_BROADCAST] = dl_mpi_broadcast,
    [DL_BARRIER] = dl_mpi_barrier,       [DL_REDUCE] = dl_mpi_reduce,
    [DL_ALL_GATHER] = dl_mpi_all_gather, [DL_GATHER] = dl_mpi_gather,
    [DL_SCATTER] = dl_mpi_scatter,       [DL_REDUCE_SCATTER] = dl_mpi_reduce_scatter,
    [DL_ALL_TO_ALL] = dl_mpi_all_to_all, [DL_SCAN] = dl_mpi_scan,
    [DL_EXSCAN] = dl_mpi_scan,
};

static dl_status
run_collective(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    dl_op_type type = dl_op_type_exchanges_cards(call->op) ? DL_ALL_GATHER : call->op;

    self->op = op;
    dl_status status = runs[type](self, call);
    return status == DL_OK ? DL_OK : dl_mpi_fail_operation(self, status);
}

static const dl_backend_ops mpi_ops = {
    .name = "mpi",
    .leaves_windows = true,
    .collectives =
        {
            [DL_ALL_REDUCE] = run_collective,
            [DL_BROADCAST] = run_collective,
            [DL_BARRIER] = run_collective,
            [DL_REDUCE] = run_collective,
            [DL_ALL_GATHER] = run_collective,
            [DL_GATHER] = run_collective,
            [DL_SCATTER] = run_collective,
            [DL_REDUCE_SCATTER] = run_collective,
            [DL_ALL_TO_ALL] = run_collective,
            [DL_SCAN] = run_collective,
            [DL_EXSCAN] = run_collective,
        },
    .post = post_message,
    .watch = check_lost,
    .lost = check_lost,
    .note_loss = note_loss,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

/* Sets what this process would share with the members of its host, unless
 * DISTLITE_MPI_SHARED_MEMORY forbids it. */
static dl_status
choose_memory_space(uint64_t *space)
{
    bool is_allowed;

    DL_TRY(dl_environment_flag("DISTLITE_MPI_SHARED_MEMORY", true, &is_allowed));
    *space = is_allowed ? dl_cpu_memory_space() : 0;
    return DL_OK;
}

static void
watch_members(const dl_mpi_members *members, const dl_mpi_world *world, int size)
{
    for (int rank = 0; rank < size; rank++) {
        dl_mpi_process_watch(members->world_ranks[rank], world->size,
                             &members->processes[rank]);
    }
}

static void
members_fini(dl_mpi_members *members)
{
    free(members->world_ranks);
    free(members->processes);
}

/* Meets the other members in the group's store. */
static dl_status
meet_members(dl_mpi_members *members, const dl_mpi_world *world,
             const dl_backend_options *options, dl_deadline deadline)
{
    if (options->size > world->size) {
        return dl_fail(DL_INVALID,
                       "group %s has %d ranks, but MPI's world has only %d: start them "
                       "with mpirun -n %d",
                       options->group_name, options->size, world->size, options->size);
    }
    members->world_ranks = calloc((size_t)options->size, sizeof *members->world_ranks);
    members->processes = calloc((size_t)options->size, sizeof *members->processes);
    if (members->world_ranks == NULL || members->processes == NULL) {
        return dl_fail_no_memory();
    }
    dl_mpi_member own = {.world_rank = world->rank,
                         .world_size = world->size,
                         .process = dl_mpi_process_own()};
    DL_TRY(choose_memory_space(&own.memory_space));
    DL_TRY(dl_mpi_members_meet(members, options, &own, deadline));
    /* Each member waits for this one, so its process exists unless it has just
     * ended. */
    watch_members(members, world, options->size);
    return DL_OK;
}

/* After an interruption the communicator is made all the same: the others make it, which
 * blocks until this rank does so, too. */
static dl_status
open_backend(dl_mpi_backend *self, const dl_mpi_members *members,
             const dl_mpi_world *world, const dl_backend_options *options)
{
    DL_TRY(dl_mpi_runner_start());
    DL_TRY(dl_mpi_comm_new(world, options->group_name, members->world_ranks,
                           options->rank, options->size, &self->comm));
    if (members->is_interrupted) {
        dl_fail(DL_INTERRUPTED, "interrupted by a signal");
        dl_mpi_notice_send_failure(self->comm, dl_last_error());
        return dl_fail(DL_INTERRUPTED, "interrupted by a signal");
    }
    self->heard = calloc((size_t)self->size, sizeof *self->heard);
    return self->heard == NULL ? dl_fail_no_memory() : DL_OK;
}

static dl_status
make_over_mpi(const dl_mpi_members *members, const dl_mpi_world *world,
              const dl_backend_options *options, dl_backend **backend)
{
    dl_mpi_backend *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base.ops = &mpi_ops;
    self->base.brief = BRIEF;
    self->base.has_brief_messages = true;
    self->base.spans_hosts = options->size > 1; /* not known: MPI was not asked */
    self->mpi = world->mpi;
    self->rank = options->rank;
    self->size = options->size;
    dl_status status = open_backend(self, members, world, options);
    if (status != DL_OK) {
        free_backend(&self->base);
        return status;
    }
    *backend = &self->base;
    return DL_OK;
}

/* The CPU backend meets the members once more, who wait there for one that was
 * interrupted. */
static dl_status
make_in_memory(const dl_mpi_members *members, const dl_backend_options *options,
               dl_deadline deadline, dl_backend **backend)
{
    if (members->is_interrupted) {
        dl_fail(DL_INTERRUPTED, "interrupted by a signal");
        dl_cpu_backend_refuse(options);
        return DL_INTERRUPTED;
    }
    return dl_cpu_backend_new(options, deadline, backend);
}

dl_status
dl_mpi_backend_new(const dl_backend_options *options, dl_deadline deadline,
                   dl_backend **backend)
{
    const dl_mpi_world *world;
    dl_mpi_members members = {0};

    if (options->origin != NULL) {
        return dl_cpu_backend_new(options, deadline, backend);
    }
    DL_TRY(dl_mpi_world_open(&world));
    dl_status status = meet_members(&members, world, options, deadline);
    if (status == DL_OK) {
        status = members.share_memory
                     ? make_in_memory(&members, options, deadline, backend)
                     : make_over_mpi(&members, world, options, backend);
    }
    members_fini(&members);
    return status;
}

void
dl_mpi_backend_refuse(const dl_backend_options *options)
{
    if (options->origin != NULL) {
        dl_cpu_backend_refuse(options);
    }
}

dl_status
dl_mpi_probe(const char **text, const char **path)
{
    const dl_mpi_table *mpi;

    DL_TRY(dl_mpi_load(&mpi));
    *text = dl_mpi_library_text();
    *path = dl_mpi_library_path();
    return DL_OK;
}

dl_status
dl_mpi_place(int *rank, int *size)
{
    const dl_mpi_world *world;

    DL_TRY(dl_mpi_world_open(&world));
    *rank = world->rank;
    *size = world->size;
    return DL_OK;
}

void
dl_mpi_give_up(void)
{
    dl_mpi_world_skip_finalize();
}

/* Waits for a broadcast in the world.  Other ranks may start it much later, so this
 * sleeps between tests. */
static dl_status
await_broadcast(const dl_mpi_table *mpi, dl_mpi_handle *request, dl_deadline deadline)
{
    int is_done = 0;

    for (;;) {
        DL_TRY(dl_mpi_check(mpi, dl_mpi_test(mpi, request, &is_done), "MPI_Test"));
        if (is_done) {
            return DL_OK;
        }
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "MPI's rank 0 sent nothing for %" PRId64
                           "ms: all ranks of MPI's world must call "
                           "init_process_group(\"mpi\")",
                           deadline.limit / DL_MILLISECOND);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, DL_MILLISECOND)));
    }
}

dl_status
dl_mpi_broadcast_in_world(void *bytes, size_t size, dl_deadline deadline)
{
    const dl_mpi_world *world;
    dl_mpi_handle request = 0;

    DL_TRY(dl_mpi_world_open(&world));
    DL_TRY(dl_mpi_runner_start());
    /* MPI gets a copy, which is not freed after a failure: MPI may still write to
     * it. */
    void *copy = malloc(size);
    if (copy == NULL) {
        return dl_fail_no_memory();
    }
    memcpy(copy, bytes, size);
    int result = world->mpi->ibcast(copy, (int)size, world->mpi->byte, 0,
                                    world->mpi->world, &request);
    dl_status status = dl_mpi_check(world->mpi, result, "MPI_Ibcast");
    if (status == DL_OK) {
        status = await_broadcast(world->mpi, &request, deadline);
    }
    if (status != DL_OK) {
        dl_mpi_world_skip_finalize();
        return status;
    }
    memcpy(bytes, copy, size);
    free(copy);
    return DL_OK;
}
