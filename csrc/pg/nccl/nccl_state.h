/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The backend's state, and the functions that the files of this folder share. */
#ifndef DISTLITE_PG_NCCL_NCCL_STATE_H
#define DISTLITE_PG_NCCL_NCCL_STATE_H

#include "pg/nccl/nccl_backend.h"
#include "pg/nccl/nccl_watch.h"

typedef struct dl_nccl_backend {
    dl_device_backend base;
    /* fixed after init */
    const dl_nccl_table *nccl;
    const dl_cuda_table *cuda;
    dl_store *store;
    int rank;
    int size;
    dl_device_options options;
    int64_t limit; /* of every operation, from NCCL_TIMEOUT; negative: the call's own */
    uint32_t fork_generation;
    dl_nccl_watch *watch;
    /* used with the group's turn for devices */
    dl_nccl_comm *comm;   /* all ranks'; NULL until it is made, like each pair's */
    dl_nccl_comm **pairs; /* indexed by the other rank */
    uint64_t splits;      /* how often `comm` has been split */
} dl_nccl_backend;

static inline dl_nccl_backend *
dl_nccl_self(dl_device_backend *backend)
{
    return (dl_nccl_backend *)(void *)backend;
}

/* Checks and launches the call's operations, as dl_device_ops.enqueue; makes the
 * communicator that they need first. */
dl_status dl_nccl_enqueue(dl_device_backend *backend, const dl_device_call *call,
                          dl_work **work);

/* Makes the communicator of all ranks on `device`, unless there is one; DL_INVALID if
 * that is on another device. */
dl_status dl_nccl_connect(dl_device_backend *backend, int device, dl_deadline deadline);

/* Finds out whether the streams of the call's arrays are being captured into a graph.
 * DL_INVALID: only some of them are; or the communicator's stream is and they are not;
 * or they are and there is no communicator, which cannot be made during a capture. */
dl_status dl_nccl_capture_look(const dl_nccl_backend *self, const dl_device_call *call,
                               const dl_nccl_comm *comm, bool *is_captured);

/* Returns 1 if the work has ended, 0 if not yet, and -1 if it has failed or timed out;
 * the thread's last error tells why. */
int dl_nccl_work_look(dl_nccl_work *work);

/* Finishes the works whose event has completed. */
void dl_nccl_watch_reap(dl_nccl_watch *watch);

void dl_nccl_watch_unref(dl_nccl_watch *watch);

#endif
