/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What all communicators need, however they are made: their turns, the wait for a call
 * that is in progress, and their end. */
#ifndef DISTLITE_PG_NCCL_NCCL_COMM_H
#define DISTLITE_PG_NCCL_NCCL_COMM_H

#include "pg/nccl/nccl_watch.h"

/* Takes the communicator's turn; dl_lane_pass() returns it. */
dl_status dl_nccl_comm_take_turn(dl_nccl_comm *comm, dl_deadline deadline);

/* Waits for a call that has returned `result` on a non-blocking communicator, which may
 * still be in progress.  Called with the turn. */
dl_status dl_nccl_comm_await(dl_nccl_watch *watch, void *handle, int result,
                             const char *call, dl_deadline deadline);

/* Drops a reference; the last one frees the memory.  The backend has one, and from
 * dl_nccl_watch_comm() on the watch, too.  NULL does nothing. */
void dl_nccl_comm_unref(dl_nccl_comm *comm);

/* Frees the resources of NCCL and of the device, and drops a reference.  May hang in
 * NCCL. */
void dl_nccl_comm_free(dl_nccl_watch *watch, dl_nccl_comm *comm, bool is_aborted);

/* Has the watch watch the communicator.  On failure it is freed as one that was aborted:
 * one that is made after the group has failed, as the other ranks do with theirs. */
dl_status dl_nccl_comm_watch(dl_nccl_watch *watch, dl_nccl_comm *comm);

#endif
