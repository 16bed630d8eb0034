/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups of backend mpi over the double of MPI.  Ranks are processes, since MPI has one
 * world per process. */
#ifndef DISTLITE_TESTS_MPI_JOBS_H
#define DISTLITE_TESTS_MPI_JOBS_H

#include "groups.h"
#include "pg/mpi/mpi_state.h"

/* Sets the double's environment; to be called before anything uses MPI. */
DL_CHECK_UNUSED static void
enter_job(int rank, const rank_processes *all)
{
    char text[16];

    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", all->size);
    setenv("WORLD_SIZE", text, 1);
}

DL_CHECK_UNUSED static dl_group *
join_mpi_group(dl_store *store, const char *name, int rank, const rank_processes *all)
{
    dl_group_options options = {.name = name,
                                .backend = "mpi",
                                .rank = rank,
                                .size = all->size,
                                .timeout = GROUP_PATIENCE};
    dl_group *group = NULL;

    CHECK_OK(dl_group_new(&options, store, &group));
    return group;
}

typedef struct scene {
    int rank, size;
    dl_store *store;
    dl_group *group;
} scene;

/* A rank that ends its group would end the joining of one that is still about it. */
DL_CHECK_UNUSED static void
wait_until_all_have_joined(const scene *self)
{
    for (int i = 0; i < self->size; i++) {
        int rank = (self->rank + i) % self->size;
        char text[32];
        snprintf(text, sizeof text, "joined/%d", rank);
        dl_bytes key = dl_bytes_of(text);
        if (rank == self->rank) {
            CHECK_OK(dl_store_set(self->store, key, key, soon()));
        }
        CHECK_OK(dl_store_wait(self->store, &key, 1, soon()));
    }
}

DL_CHECK_UNUSED static scene
enter(int rank, const rank_processes *all)
{
    enter_job(rank, all);
    scene self = {.rank = rank, .size = all->size, .store = open_file_store(all)};
    self.group = join_mpi_group(self.store, "0", rank, all);
    wait_until_all_have_joined(&self);
    return self;
}

DL_CHECK_UNUSED static void
leave(scene *self)
{
    end_group(self->group);
    dl_store_unref(self->store);
}

DL_CHECK_UNUSED static void
run_job(int size, rank_process_fn run, void *context)
{
    char job[] = "/tmp/distlite-mpi-XXXXXX";
    rank_processes all;
    int fd = mkstemp(job);

    CHECK(fd >= 0);
    close(fd);
    setenv("DOUBLE_MPI_JOB", job, 1);
    start_processes(&all, size, run, context);
    join_processes(&all, 0);
    unlink(job);
}

#endif
