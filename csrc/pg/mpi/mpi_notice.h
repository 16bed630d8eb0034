/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a rank tells all others about the operation that it runs: that it waits for long,
 * and in which call, or that it has given up, and why.  Notices are short messages, which
 * a rank receives when it waits itself, and once in a while otherwise. */
#ifndef DISTLITE_PG_MPI_MPI_NOTICE_H
#define DISTLITE_PG_MPI_MPI_NOTICE_H

#include "pg/fingerprint.h"
#include "pg/mpi/mpi_comm.h"

typedef struct dl_mpi_notice {
    dl_fingerprint fingerprint;
    uint64_t turn;
    uint64_t digest; /* of all calls before */
    int32_t status;  /* DL_OK: the rank waits, and the text is not sent */
    char text[1012];
} dl_mpi_notice;

/* Sends the notice to all other ranks, and leaves it to MPI. */
void dl_mpi_notice_send(dl_mpi_comm *comm, const dl_mpi_notice *notice);

/* Tells all other ranks why this one has given up, so that those that wait or come later
 * fail as well.  Only the first call does so, and none after another rank's notice of
 * that kind.  MPI is not finalized from then on: it may never complete what was left to it
 * here or on another rank.  From any thread; takes 100 ms at most. */
void dl_mpi_notice_send_failure(dl_mpi_comm *comm, const dl_error *cause);

/* Receives one notice, from rank `*from`; returns false if there is none.  After that of
 * a failed operation MPI is not finalized, which would wait for a rank that does not do
 * so either. */
bool dl_mpi_notice_receive(dl_mpi_comm *comm, dl_mpi_notice *notice, int *from);

/* Receives and drops the notices that have come; returns false. */
bool dl_mpi_notice_drop(dl_mpi_comm *comm);

/* Fails with the error of a rank that has given up. */
dl_status dl_mpi_notice_fail(dl_mpi_comm *comm, int from, const dl_mpi_notice *notice);

#endif
