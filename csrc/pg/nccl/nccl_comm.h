/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making communicators: by a unique id that the first rank leaves in the store, or from a
 * communicator that exists, by splitting or shrinking it.  All of them need every rank of
 * the new one at the same time.  NCCL's call runs on a thread of its own, because it blocks
 * until all ranks have come and nothing but their coming ends it: the caller leaves at its
 * deadline, when it is interrupted, or when the group is aborted. */
#ifndef DISTLITE_PG_NCCL_NCCL_COMM_H
#define DISTLITE_PG_NCCL_NCCL_COMM_H

#include "pg/nccl/nccl_meeting.h"

/* The caller has a reference to `*comm`, and nobody watches it yet. */
dl_status dl_nccl_comm_meet(dl_nccl_watch *watch, const dl_nccl_meeting *meeting,
                            dl_deadline deadline, dl_nccl_comm **comm);

/* One of a parent's ranks goes into the part of its `color`, ordered by `key`, or, with
 * a negative color, into none; or all but those excluded go on together. */
typedef struct dl_nccl_parting {
    dl_nccl_comm *parent;
    const dl_nccl_meeting *meeting; /* of all its ranks; NULL where they may be dead */
    bool is_shrinking;
    int color;
    int key;
    const int *excluded;
    int excluded_count;
    int flags; /* of ncclCommShrink: 1 aborts what the parent does */
    const dl_device_options *options;
} dl_nccl_parting;

/* `watch` is the parent's.  `*comm` is NULL where this rank is in no part.  What fails
 * before NCCL has been called leaves the parent as it was; what fails later breaks it. */
dl_status dl_nccl_comm_part(dl_nccl_watch *watch, const dl_nccl_parting *parting,
                            dl_deadline deadline, dl_nccl_comm **comm);

/* Waits, with the turn, for a call that a communicator which does not block may still be
 * busy with. */
dl_status dl_nccl_comm_settle(dl_nccl_watch *watch, void *handle, int result,
                              const char *call, dl_deadline deadline);

/* The memory goes with the last reference: the backend's, and from dl_nccl_watch_comm() on
 * the watch's. */
void dl_nccl_comm_unref(dl_nccl_comm *comm);

#endif
