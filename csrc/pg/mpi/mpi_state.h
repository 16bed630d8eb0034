/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of an MPI backend, and what its operations are made of: for mpi_backend.c,
 * which creates and frees it, and for the files that implement the operations.
 *
 * MPI moves large blocks that are equal on all ranks; the CPU backend beside it carries
 * out everything else.  Before MPI gets an array, the ranks meet over the CPU backend.
 * That compares what they call, waits with a deadline, and notices dead ranks; MPI does
 * none of these, and cannot cancel what has begun.
 *
 * Requests of an operation that has failed are left to MPI.  The backend then gives up
 * its own memory that they use, and callers keep the arrays
 * (dl_backend_keep_memory()). */
#ifndef DISTLITE_PG_MPI_MPI_STATE_H
#define DISTLITE_PG_MPI_MPI_STATE_H

#include "base/buffer.h"
#include "pg/paired_backend.h"
#include "pg/mpi/mpi_world.h"

/* A request of the operation that runs. */
typedef struct dl_mpi_pending {
    dl_mpi_handle request; /* 0: it has ended */
    const char *name;      /* MPI's function */
} dl_mpi_pending;

typedef struct dl_mpi_backend {
    dl_paired_backend pair;
    /* fixed after init */
    const dl_mpi_table *mpi;
    dl_mpi_handle comm;
    char *group_name;
    int rank;
    int size;
    size_t least; /* MPI moves blocks of so many bytes or more */
    size_t piece; /* most bytes of one call: MPI's counts are ints */
    /* used only by the thread that runs an operation */
    const dl_op_context *op;
    bool uses_arrays; /* MPI has the callers' arrays */
    bool has_left;    /* MPI may still use the communicator, which is not freed then */
    dl_mpi_pending *pending;
    int pending_count, pending_room;
    dl_buffer staging; /* memory for data that MPI does not get from the arrays */
} dl_mpi_backend;

static inline dl_mpi_backend *
dl_mpi_self(dl_backend *backend)
{
    return (dl_mpi_backend *)(void *)backend;
}

/* Exchanges which ranks of MPI's world the members are, over the CPU backend, and makes
 * the communicator.  `*is_needed`: whether MPI is to move anything; all members find the
 * same.  `wants_all` is whether this rank wants MPI to move all blocks, also on one
 * host. */
dl_status dl_mpi_members_init(dl_mpi_backend *self, const dl_mpi_world *world,
                              bool wants_all, dl_deadline deadline, bool *is_needed);

/* Returns once all ranks have called the operation, whose arrays are then MPI's. */
dl_status dl_mpi_rendezvous(dl_mpi_backend *self);

/* Makes room for another request in the list of those that are pending; called before the
 * first operation. */
dl_status dl_mpi_make_room(dl_mpi_backend *self);

/* Adds a request that MPI has just made; `result` is what the function returned. */
dl_status dl_mpi_add(dl_mpi_backend *self, int result, dl_mpi_handle request,
                     const char *name);

/* Waits for all requests, and checks that the arrays are still in place. */
dl_status dl_mpi_finish(dl_mpi_backend *self);

/* Ends a failed operation: tells the other ranks, and leaves the requests to MPI. */
dl_status dl_mpi_fail_operation(dl_mpi_backend *self);

/* Returns memory of `size` bytes, whose contents are lost.  NULL: there is none. */
char *dl_mpi_stage(dl_mpi_backend *self, size_t size);

/* Carry out one operation, without what dl_mpi_fail_operation() does.  DL_UNSUPPORTED,
 * before anything is sent: MPI does not have it. */
typedef dl_status dl_mpi_run_fn(dl_mpi_backend *self, const dl_call *call);

dl_mpi_run_fn dl_mpi_broadcast, dl_mpi_all_gather, dl_mpi_move_rooted;
dl_mpi_run_fn dl_mpi_all_to_all, dl_mpi_all_reduce;

#endif
