/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the ranks of a communicator meet before NCCL makes it.  Each marks itself in the
 * store, and waits for a key, the outcome that holds for all: the last rank to come
 * writes that all have, or the first one to give up, that it did.  So a rank that comes
 * late does not call NCCL alone, and a rank whose deadline passes just when the last one
 * comes goes on with the others. */
#ifndef DISTLITE_PG_NCCL_NCCL_RENDEZVOUS_H
#define DISTLITE_PG_NCCL_NCCL_RENDEZVOUS_H

#include "pg/device/device_options.h"
#include "pg/nccl/nccl_comm.h"
#include "store/store.h"

/* What a communicator is made from; zeroed for a new one. */
typedef struct dl_nccl_origin {
    dl_device_split_args wanted;
    dl_nccl_comm *parent; /* NULL on the ranks by which one grows, like its watch */
    dl_nccl_watch *watch;
} dl_nccl_origin;

typedef struct dl_nccl_rendezvous {
    dl_store *store;
    const char *key; /* identifies this communicator; the same on all of its ranks */
    int rank;
    int size;
    const int *members; /* by rank, the rank in the group; NULL if equal */
    int ranks_per_id;   /* of a new one, where the library can; 0: one id for all */
    int device;
    const dl_device_options *options;
    dl_nccl_origin origin;
} dl_nccl_rendezvous;

/* Meets the other ranks, and fills in the ids, of which there may be none.  DL_TIMEOUT
 * names the ranks that have not come, or the one that gave up before all had come.  If
 * the group is aborted meanwhile, it fails with the watch's cause. */
dl_status dl_nccl_meet(dl_nccl_watch *watch, const dl_nccl_rendezvous *place,
                       dl_deadline deadline, dl_nccl_id *ids, int id_count);

#endif
