/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/thread.h"
#include "pg/cpu/cpu_backend.h"
#include "pg/mpi/mpi_state.h"

/* MPI moves blocks of so many bytes or more: below, the CPU backend moves them sooner over
 * TCP than all MPIs that were measured, and the barrier before takes more than a tenth of
 * the time. */
#define LEAST ((size_t)512 << 10)

/* The most bytes of one call of MPI, whose counts are ints: a power of two that leaves
 * room below INT_MAX for small sums.  A piece consists of whole elements, of which the
 * largest are complex128. */
#define LARGEST_PIECE ((size_t)1 << 30)
#define SMALLEST_PIECE ((size_t)1 << 12)
#define LARGEST_ITEM 16

static void
free_backend(dl_backend *backend)
{
    dl_mpi_backend *self = dl_mpi_self(backend);

    if (self->comm != 0 && !self->has_left && dl_mpi_world_is_open()) {
        self->mpi->comm_free(&self->comm);
    }
    if (self->pair.base.cpu != NULL) {
        self->pair.base.cpu->ops->free(self->pair.base.cpu);
    }
    pthread_mutex_destroy(&self->pair.lock);
    dl_buffer_fini(&self->staging);
    free(self->pending);
    free(self->group_name);
    free(self);
}

static bool
is_proved(dl_backend *backend, int rank)
{
    dl_backend *cpu = dl_mpi_self(backend)->pair.base.cpu;

    return cpu->ops->is_proved(cpu, rank);
}

/* reduce and reduce_scatter are missing: the non-blocking ones of the MPIs that were
 * measured take longer than the CPU backend's, and up to three times as long as their
 * blocking ones. */
static dl_mpi_run_fn *const runs[DL_OP_TYPE_COUNT] = {
    [DL_ALL_REDUCE] = dl_mpi_all_reduce, [DL_BROADCAST] = dl_mpi_broadcast,
    [DL_ALL_GATHER] = dl_mpi_all_gather, [DL_GATHER] = dl_mpi_move_rooted,
    [DL_SCATTER] = dl_mpi_move_rooted,   [DL_ALL_TO_ALL] = dl_mpi_all_to_all,
};

/* Returns what MPI does for a call, or NULL.  The answer depends only on what the ranks
 * compare, so that they find the same: an operation whose call differs from it, as those
 * on uneven blocks and the exchanges of other operations, and small blocks are the CPU
 * backend's.  Of an all_to_all no rank knows all blocks. */
static dl_mpi_run_fn *
find_run(const dl_mpi_backend *self, const dl_op_context *op, const dl_call *call)
{
    const dl_fingerprint *compared = &op->fingerprint;
    bool is_coalesced =
        compared->op == DL_ALL_REDUCE_COALESCED && call->op == DL_ALL_REDUCE;

    if ((compared->op != call->op && !is_coalesced) || call->reducer != NULL) {
        return NULL;
    }
    bool is_large =
        dl_fingerprint_count(compared) * call->tensor.item_size >= self->least;
    return is_large || call->op == DL_ALL_TO_ALL ? runs[call->op] : NULL;
}

static dl_status
run_by_mpi(dl_mpi_backend *self, const dl_op_context *op, const dl_call *call,
           dl_mpi_run_fn *run)
{
    self->op = op;
    self->uses_arrays = false;
    dl_status status = run(self, call);
    if (status == DL_UNSUPPORTED) {
        return dl_backend_run(self->pair.base.cpu, op, call);
    }
    return status == DL_OK ? DL_OK : dl_mpi_fail_operation(self);
}

static dl_status
run_collective(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_mpi_backend *self = dl_mpi_self(backend);
    dl_mpi_run_fn *run = find_run(self, op, call);
    dl_status status = run == NULL ? dl_backend_run(self->pair.base.cpu, op, call)
                                   : run_by_mpi(self, op, call, run);

    if (status == DL_PEER_LOST) {
        dl_mpi_world_skip_finalize();
    } else if (status != DL_OK) {
        dl_mpi_world_note_failure();
    }
    return status;
}

static const dl_backend_ops mpi_ops = {
    .name = "mpi",
    .collectives = DL_PAIRED_COLLECTIVES(run_collective),
    .abort = dl_paired_abort,
    .is_proved = is_proved,
    .free = free_backend,
};

/* DISTLITE_MPI_PIECE lets tests exercise arrays that are too large for one call of
 * MPI. */
static size_t
choose_piece(void)
{
    const char *text = getenv("DISTLITE_MPI_PIECE");
    size_t asked = text == NULL ? 0 : (size_t)strtoull(text, NULL, 10);
    bool is_right = asked >= SMALLEST_PIECE && asked <= LARGEST_PIECE;

    return is_right ? asked / LARGEST_ITEM * LARGEST_ITEM : LARGEST_PIECE;
}

/* What can fail before the ranks have met. */
static dl_status
prepare_world(const dl_backend_options *options, const dl_mpi_world **world,
              bool *wants_all)
{
    bool shares_memory;

    DL_TRY(dl_mpi_world_open(world));
    if (options->size > (*world)->size) {
        return dl_fail(DL_INVALID,
                       "group %s has %d ranks, but MPI's world has only %d: start them "
                       "with mpirun -n %d",
                       options->group_name, options->size, (*world)->size,
                       options->size);
    }
    DL_TRY(dl_environment_flag("DISTLITE_MPI_SHARED_MEMORY", true, &shares_memory));
    *wants_all = !shares_memory;
    return DL_OK;
}

static dl_status
open_backend(dl_mpi_backend *self, const dl_mpi_world *world, bool wants_all,
             dl_deadline deadline, bool *is_needed)
{
    dl_status status =
        self->group_name == NULL ? dl_fail_no_memory() : dl_mpi_make_room(self);

    if (status == DL_OK) {
        status = dl_mpi_members_init(self, world, wants_all, deadline, is_needed);
    }
    if (status == DL_OK && *is_needed) {
        status = dl_mpi_progress_start();
    }
    return status == DL_OK ? DL_OK : dl_paired_refuse(&self->pair);
}

/* Makes the backend beside a CPU backend, which is given up. */
static dl_status
make_beside(dl_backend *cpu, const dl_mpi_world *world, bool wants_all,
            const dl_backend_options *options, dl_deadline deadline,
            dl_backend **backend)
{
    dl_mpi_backend *self = calloc(1, sizeof *self);
    bool is_needed = false;

    if (self == NULL) {
        cpu->ops->free(cpu);
        return dl_fail_no_memory();
    }
    pthread_mutex_init(&self->pair.lock, NULL);
    self->pair.base.ops = &mpi_ops;
    self->pair.base.brief = cpu->brief;
    self->pair.base.has_brief_messages = cpu->has_brief_messages;
    self->pair.base.spans_hosts = cpu->spans_hosts;
    self->pair.base.cpu = cpu;
    self->mpi = world->mpi;
    self->group_name = strdup(options->group_name);
    self->rank = options->rank;
    self->size = options->size;
    self->least = LEAST;
    self->piece = choose_piece();
    dl_status status = open_backend(self, world, wants_all, deadline, &is_needed);
    if (status == DL_OK && is_needed) {
        *backend = &self->pair.base;
        return DL_OK;
    }
    dl_error error = *dl_last_error();
    if (status == DL_OK) {
        *backend = cpu;
        self->pair.base.cpu = NULL;
    }
    free_backend(&self->pair.base);
    return status == DL_OK ? DL_OK : dl_rethrow(&error);
}

dl_status
dl_mpi_backend_new(const dl_backend_options *options, dl_deadline deadline,
                   dl_backend **backend)
{
    const dl_mpi_world *world;
    dl_backend *cpu;
    bool wants_all = false;

    if (options->origin != NULL) {
        return dl_cpu_backend_new(options, deadline, backend);
    }
    dl_status status = prepare_world(options, &world, &wants_all);
    if (status != DL_OK) {
        dl_cpu_backend_refuse(options);
        return status;
    }
    DL_TRY(dl_cpu_backend_new(options, deadline, &cpu));
    dl_cpu_watch_for_good(cpu); /* for the end of MPI */
    return make_beside(cpu, world, wants_all, options, deadline, backend);
}

void
dl_mpi_backend_refuse(const dl_backend_options *options)
{
    dl_cpu_backend_refuse(options);
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
    DL_TRY(dl_mpi_progress_start());
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
