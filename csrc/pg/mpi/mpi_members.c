/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the members of a group find out which ranks of MPI's world they are, and make a
 * communicator.  MPI makes it while all of them wait for each other, which neither a
 * deadline nor a signal can end, so a thread of its own does that. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/references.h"
#include "base/thread.h"
#include "pg/mpi/mpi_state.h"
#include "pg/paired_gather.h"

/* What a member tells the others, in the order of ranks. */
typedef struct member {
    int32_t world_rank, world_size;
    uint64_t wants_all;
} member;

static dl_status
exchange_members(dl_mpi_backend *self, member *members, dl_deadline deadline)
{
    dl_paired_gather gather = {.cpu = self->pair.base.cpu,
                               .what = "backend mpi",
                               .rank = self->rank,
                               .size = self->size,
                               .deadline = deadline,
                               .all = members};
    dl_bytes own = {(const uint8_t *)&members[self->rank], sizeof *members};
    bool is_done;

    dl_status status = dl_paired_gather_begin(&gather, own);
    if (status == DL_OK) {
        status = dl_paired_gather_test(&gather, dl_deadline_after(-1), &is_done);
    }
    dl_paired_gather_end(&gather);
    return status;
}

/* Checks that the members can be in one communicator.  All come to the same result. */
static dl_status
check_members(const dl_mpi_backend *self, const member *members)
{
    for (int rank = 1; rank < self->size; rank++) {
        if (members[rank].world_size != members[0].world_size) {
            return dl_fail(
                DL_INVALID,
                "group %s: MPI's world has %d ranks for rank 0 and %d for rank %d: "
                "start all ranks with one mpirun",
                self->group_name, members[0].world_size, members[rank].world_size,
                rank);
        }
        for (int other = 0; other < rank; other++) {
            if (members[other].world_rank == members[rank].world_rank) {
                return dl_fail(
                    DL_INVALID,
                    "group %s: ranks %d and %d both are rank %d of an MPI world: "
                    "start all ranks with one mpirun",
                    self->group_name, other, rank, members[rank].world_rank);
            }
        }
    }
    return DL_OK;
}

/* A communicator that is being made, which its thread frees if nobody waits for it any
 * more. */
typedef struct creation {
    const dl_mpi_table *mpi;
    int *ranks; /* of the world */
    int size;
    int tag;
    dl_mpi_handle comm;
    dl_status status;
    dl_error error;
    atomic_bool is_made;
    atomic_uint users; /* its thread, and the one that waits for it */
} creation;

static void
creation_unref(creation *self)
{
    if (dl_reference_drop(&self->users)) {
        free(self->ranks);
        free(self);
    }
}

/* Creates it from the world instead of a parent, so that only the members take part and
 * no communicator has to outlive its group. */
static dl_status
create_communicator(creation *self)
{
    const dl_mpi_table *mpi = self->mpi;
    dl_mpi_handle all = 0, some = 0;

    DL_TRY(dl_mpi_check(mpi, mpi->comm_group(mpi->world, &all), "MPI_Comm_group"));
    int result = mpi->group_incl(all, self->size, self->ranks, &some);
    mpi->group_free(&all);
    DL_TRY(dl_mpi_check(mpi, result, "MPI_Group_incl"));
    result = mpi->comm_create_group(mpi->world, some, self->tag, &self->comm);
    mpi->group_free(&some);
    DL_TRY(dl_mpi_check(mpi, result, "MPI_Comm_create_group"));
    mpi->comm_set_errhandler(self->comm, mpi->errors_return);
    return DL_OK;
}

static void *
create_aside(void *argument)
{
    creation *self = argument;

    self->status = create_communicator(self);
    self->error = *dl_last_error();
    atomic_store(&self->is_made, true);
    creation_unref(self);
    return NULL;
}

/* Groups that other threads create at the same time most probably have other tags. */
static int
tag_of(const char *group_name, int last_tag)
{
    static const uint64_t seed[2] = {0, 0}; /* the same on all ranks */
    dl_bytes name = {(const uint8_t *)group_name, strlen(group_name)};

    return (int)(dl_hash_seeded(name, seed) % ((uint64_t)last_tag + 1));
}

static dl_status
await_creation(dl_mpi_backend *self, creation *made, dl_deadline deadline)
{
    while (!atomic_load(&made->is_made)) {
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "group %s: MPI has not made its communicator within %" PRId64
                           "ms, although all ranks have come",
                           self->group_name, deadline.limit / DL_MILLISECOND);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, DL_MILLISECOND)));
        DL_TRY(self->pair.base.cpu->ops->lost(self->pair.base.cpu, -1));
    }
    DL_TRY(made->status == DL_OK ? DL_OK : dl_rethrow(&made->error));
    self->comm = made->comm;
    return DL_OK;
}

static dl_status
make_communicator(dl_mpi_backend *self, const dl_mpi_world *world,
                  const member *members, dl_deadline deadline)
{
    creation *made = calloc(1, sizeof *made);
    int *ranks = calloc((size_t)self->size, sizeof *ranks);
    pthread_t thread;

    if (made == NULL || ranks == NULL) {
        free(made);
        free(ranks);
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < self->size; rank++) {
        ranks[rank] = members[rank].world_rank;
    }
    made->mpi = world->mpi;
    made->ranks = ranks;
    made->size = self->size;
    made->tag = tag_of(self->group_name, world->last_tag);
    atomic_init(&made->users, 2);
    dl_status status = dl_thread_start(&thread, create_aside, made);
    if (status == DL_OK) {
        pthread_detach(thread);
        status = await_creation(self, made, deadline);
    } else {
        atomic_store(&made->users, 1);
    }
    if (status != DL_OK) {
        dl_mpi_world_skip_finalize(); /* its thread may still be in MPI */
    }
    creation_unref(made);
    return status;
}

dl_status
dl_mpi_members_init(dl_mpi_backend *self, const dl_mpi_world *world, bool wants_all,
                    dl_deadline deadline, bool *is_needed)
{
    member *members = calloc((size_t)self->size, sizeof *members);

    if (members == NULL) {
        return dl_fail_no_memory();
    }
    members[self->rank] = (member){world->rank, world->size, wants_all};
    dl_status status = exchange_members(self, members, deadline);
    if (status == DL_OK) {
        status = check_members(self, members);
    }
    bool is_for_all = false;
    for (int rank = 0; rank < self->size; rank++) {
        is_for_all |= members[rank].wants_all != 0;
    }
    self->least = is_for_all ? 1 : self->least;
    *is_needed = self->size > 1 && (is_for_all || self->pair.base.cpu->spans_hosts);
    if (status == DL_OK && *is_needed) {
        status = make_communicator(self, world, members, deadline);
    }
    free(members);
    return status;
}
