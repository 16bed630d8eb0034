/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The operations that this rank called most recently in a group, to compare with what
 * other ranks say they called.  Where ranks run ahead of each other, a difference may
 * be detected some operations later. */
#ifndef DISTLITE_PG_MPI_MPI_HISTORY_H
#define DISTLITE_PG_MPI_MPI_HISTORY_H

#include "pg/backend.h"

/* More operations than one rank runs ahead of another. */
#define DL_MPI_REMEMBERED 128

typedef struct dl_mpi_history {
    uint64_t newest;                          /* sequence number; from 1 */
    uint64_t digest;                          /* of all operations before the newest */
    dl_fingerprint called[DL_MPI_REMEMBERED]; /* by sequence number */
} dl_mpi_history;

/* Adds an operation of the group; does nothing if it is the newest already. */
void dl_mpi_history_note(dl_mpi_history *history, const dl_op_context *op);

/* Returns what was called as operation `sequence`, or NULL if that is no longer
 * remembered or yet to come. */
const dl_fingerprint *dl_mpi_history_at(const dl_mpi_history *history,
                                        uint64_t sequence);

#endif
