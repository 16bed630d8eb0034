/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What this rank called lately in a group, to hold against what others say they called.
 * Where ranks run ahead of each other, a difference may come out some operations later. */
#ifndef DISTLITE_PG_MPI_MPI_HISTORY_H
#define DISTLITE_PG_MPI_MPI_HISTORY_H

#include "pg/backend.h"

/* More than ranks run ahead of each other. */
#define DL_MPI_REMEMBERED 128

typedef struct dl_mpi_history {
    uint64_t newest;                          /* sequence number; from 1 */
    uint64_t digest;                          /* of all before the newest */
    dl_fingerprint called[DL_MPI_REMEMBERED]; /* by sequence number */
} dl_mpi_history;

/* Another operation of the group, or the same once more. */
void dl_mpi_history_note(dl_mpi_history *history, const dl_op_context *op);

/* What was called then; NULL: forgotten, or yet to come. */
const dl_fingerprint *dl_mpi_history_at(const dl_mpi_history *history,
                                        uint64_t sequence);

#endif
