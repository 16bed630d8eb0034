/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The meeting of the ranks that make a communicator together.  Each rank sets a key of
 * its own in the store, rank 0 with NCCL's id as its value, and waits for the keys of
 * all others, because NCCL's call needs every rank and cannot be cancelled.  The first
 * rank that is done waiting writes a last key, the verdict that holds for all: either
 * all ranks have come, or one of them gave up.  So a rank that comes late does not call
 * NCCL alone, and a rank whose deadline passes just when the last one comes goes on
 * with the others. */
#ifndef DISTLITE_PG_NCCL_NCCL_MEETING_H
#define DISTLITE_PG_NCCL_NCCL_MEETING_H

#include "pg/device_options.h"
#include "pg/nccl/nccl_watch.h"
#include "store/store.h"

typedef struct dl_nccl_meeting {
    dl_store *store;
    const char *key; /* identifies this communicator; the same on all of its ranks */
    int rank;
    int size;
    const int *members; /* by rank, the rank in the group; NULL if equal */
    int device;
    const dl_device_options *options;
} dl_nccl_meeting;

/* Meets the other ranks and fills in the id, unless that is NULL.  DL_TIMEOUT names the
 * ranks that have not come, or the one that gave up before all had come.  If the group
 * is aborted meanwhile, it fails with the watch's cause. */
dl_status dl_nccl_meet(dl_nccl_watch *watch, const dl_nccl_meeting *meeting,
                       dl_deadline deadline, dl_nccl_id *id);

#endif
