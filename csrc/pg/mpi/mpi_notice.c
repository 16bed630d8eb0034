/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_notice.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long MPI may take to send the news of a failure. */
#define PARTING (100 * DL_MILLISECOND)

/* Without memory nothing is sent: the rank then fails by its deadline. */
static void
send_to(dl_mpi_comm *comm, int to, const dl_mpi_notice *notice, size_t size)
{
    dl_mpi_handle request = 0;
    void *letter = malloc(size);

    if (letter == NULL) {
        return;
    }
    memcpy(letter, notice, size);
    if (comm->mpi->isend(letter, (int)size, comm->mpi->byte, to, DL_MPI_NOTICE_TAG,
                         comm->handle, &request)
        != 0) {
        free(letter);
        return;
    }
    dl_mpi_leftover_add(request, letter);
}

void
dl_mpi_notice_send(dl_mpi_comm *comm, const dl_mpi_notice *notice)
{
    size_t size =
        notice->status == DL_OK ? offsetof(dl_mpi_notice, text) : sizeof *notice;

    for (int rank = 0; rank < comm->size; rank++) {
        if (rank != comm->rank) {
            send_to(comm, rank, notice, size);
        }
    }
}

void
dl_mpi_notice_send_failure(dl_mpi_comm *comm, const dl_error *cause)
{
    dl_mpi_notice notice = {.status = (int32_t)cause->status};

    dl_mpi_world_skip_finalize();
    if (atomic_exchange(&comm->has_told, true) || !dl_mpi_world_is_open()) {
        return;
    }
    snprintf(notice.text, sizeof notice.text, "%.1011s", cause->text);
    dl_mpi_notice_send(comm, &notice);
    dl_mpi_leftover_flush(PARTING);
}

bool
dl_mpi_notice_receive(dl_mpi_comm *comm, dl_mpi_notice *notice, int *from)
{
    const dl_mpi_table *mpi = comm->mpi;
    dl_mpi_handle matched, request = 0;
    dl_mpi_status found;
    int is_there = 0, is_done = 0;

    if (dl_mpi_find_message(mpi, DL_MPI_NOTICE_TAG, comm->handle, &is_there, &matched,
                            &found)
            != 0
        || !is_there
        || mpi->imrecv(notice, sizeof *notice, mpi->byte, &matched, &request) != 0) {
        return false;
    }
    /* MPI sends it eagerly, so it is here. */
    while (dl_mpi_test(mpi, &request, &is_done) == 0 && !is_done) {
        sched_yield();
    }
    *from = found.source;
    if (is_done && notice->status != DL_OK) {
        dl_mpi_world_skip_finalize();
    }
    return is_done != 0;
}

bool
dl_mpi_notice_drop(dl_mpi_comm *comm)
{
    dl_mpi_notice dropped;
    int from;

    while (dl_mpi_world_is_open() && dl_mpi_notice_receive(comm, &dropped, &from)) {
    }
    return false;
}

dl_status
dl_mpi_notice_fail(dl_mpi_comm *comm, int from, const dl_mpi_notice *notice)
{
    atomic_store(&comm->has_told, true);
    return notice->status == DL_MISMATCH
               ? dl_fail(DL_MISMATCH, "%.1011s", notice->text)
               : dl_fail(notice->status == DL_TIMEOUT ? DL_TIMEOUT : DL_PEER_LOST,
                         "group %s: rank %d gave up: %.1011s", comm->group_name, from,
                         notice->text);
}
