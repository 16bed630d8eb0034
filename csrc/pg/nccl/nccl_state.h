/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The backend's own state, and what works and their watch know of each other; for this
 * folder's files alone. */
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
    int64_t limit; /* of every operation, from NCCL_TIMEOUT; negative: the group's */
    uint32_t fork_generation;
    dl_nccl_watch *watch;
    /* by whoever has the group's turn for devices */
    dl_nccl_comm *comm; /* the watch's; NULL before the first operation, as each pair */
    dl_nccl_comm **pairs; /* by the other rank */
    uint64_t splits;      /* so far, of `comm` */
} dl_nccl_backend;

static inline dl_nccl_backend *
dl_nccl_self(dl_device_backend *backend)
{
    return (dl_nccl_backend *)(void *)backend;
}

dl_status dl_nccl_enqueue(dl_device_backend *backend, const dl_device_call *call,
                          dl_work **work);

/* Makes the communicator of all ranks, on `device`, unless there is one; DL_INVALID: it is
 * on another. */
dl_status dl_nccl_connect(dl_device_backend *backend, int device, dl_deadline deadline);

/* Whether the streams of the call's arrays are being captured into a graph.  DL_INVALID:
 * only some are, or the communicator's own is and they are not, or there is no
 * communicator yet, which cannot be made then. */
dl_status dl_nccl_capture_look(const dl_nccl_backend *self, const dl_device_call *call,
                               const dl_nccl_comm *comm, bool *is_captured);

/* 1: its end has come.  0: not yet.  -1: the thread's error says why it never will. */
int dl_nccl_work_look(dl_nccl_work *work);

/* Ends the works whose event has come. */
void dl_nccl_watch_reap(dl_nccl_watch *watch);

void dl_nccl_watch_unref(dl_nccl_watch *watch);

#endif
