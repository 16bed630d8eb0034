/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Polls messages in flight that no thread waits for, as MPI makes progress only while
 * it is called.  One thread serves the process.  Without such messages it calls MPI now
 * and then: over some networks what a rank has sent leaves it only when it calls MPI
 * again, and by then the rank may be waiting elsewhere, as in a store, for the receiver
 * of that message. */
#ifndef DISTLITE_PG_MPI_MPI_RUNNER_H
#define DISTLITE_PG_MPI_MPI_RUNNER_H

#include "base/list.h"
#include "base/status.h"

typedef struct dl_mpi_task {
    dl_list node; /* in the runner's queue or its thread's own list */
    /* Polls once, without blocking; called without locks.  Returns true once the task
     * is done: the runner then no longer has it. */
    bool (*look)(struct dl_mpi_task *task);
    /* Called before MPI ends, instead of further looks. */
    void (*end)(struct dl_mpi_task *task);
} dl_mpi_task;

/* Starts the runner, which calls MPI from now on; from any thread, idempotent. */
dl_status dl_mpi_runner_start(void);

/* Adds a task, from any thread.  It stays in place until its look returns true.
 * DL_CLOSED: the end of MPI has begun. */
dl_status dl_mpi_runner_add(dl_mpi_task *task);

#endif
