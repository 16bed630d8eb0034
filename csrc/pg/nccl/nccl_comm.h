/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes communicators: from unique ids that some ranks put into the store, or from an existing communicator, by splitting, shrinking or growing it.  Each way needs
 * every rank of the new communicator at the same time.  NCCL's call runs on a thread of its
 * own, because it blocks until all ranks have made it and cannot be cancelled: the
 * caller returns at its deadline, when it is interrupted, or when the group is
 * aborted.
 *
 * The ranks meet before the call.  Each marks itself in the store, and waits for a key,
 * the outcome that holds for all: the last rank to come writes that all have, or the
 * first one to give up, that it did.  So a rank that comes late does not call NCCL alone,
 * and a rank whose deadline passes just when the last one comes goes on with the
 * others. */
#ifndef DISTLITE_PG_NCCL_NCCL_COMM_H
#define DISTLITE_PG_NCCL_NCCL_COMM_H

#include "pg/call.h"
#include "pg/device/device_options.h"
#include "pg/nccl/nccl_watch.h"
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

/* Makes the communicator of the ranks of `place`, whose group has this watch; a split
 * that of a part of them, or NULL in `*comm` if this rank is in none.  The caller owns a
 * reference to `*comm`, which is not watched yet.  A failure before NCCL is called
 * leaves the parent as it was, except that it cannot grow any more if it was to; a later
 * one breaks it, and the parent's group fails. */
dl_status dl_nccl_comm_make(dl_nccl_watch *watch, const dl_nccl_rendezvous *place,
                            dl_deadline deadline, dl_nccl_comm **comm);

/* Returns which of DL_DEVICE_CAN_... the library has the calls for. */
int dl_nccl_ways(const dl_nccl_table *nccl);

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
