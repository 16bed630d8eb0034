/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making communicators: by a unique id that the first rank leaves in the store, or from a
 * communicator that exists, by splitting or shrinking it.  All of them need every rank of
 * the new one at the same time; a deadline bounds the wait for them, and a blocking
 * communicator is begun only when all ranks have come. */
#ifndef DISTLITE_PG_NCCL_NCCL_COMM_H
#define DISTLITE_PG_NCCL_NCCL_COMM_H

#include "pg/nccl/nccl_meeting.h"

/* With `meeting->device` the thread's current one, as below. */
dl_status dl_nccl_comm_meet(dl_nccl_watch *watch, const dl_nccl_meeting *meeting,
                            dl_deadline deadline, dl_nccl_comm **comm);

/* One of a parent's ranks goes into the part of its `color`, ordered by `key`, or, with
 * a negative color, into none; or all but those excluded go on together. */
typedef struct dl_nccl_parting {
    const dl_nccl_comm *parent;
    const dl_nccl_meeting *meeting; /* of all its ranks; NULL where they may be dead */
    bool is_shrinking;
    int color;
    int key;
    const int *excluded;
    int excluded_count;
    int flags; /* of ncclCommShrink: 1 aborts what the parent does */
    const dl_device_options *options;
} dl_nccl_parting;

/* `*comm` is NULL where this rank is in no part. */
dl_status dl_nccl_comm_part(dl_nccl_watch *watch, const dl_nccl_parting *parting,
                            dl_deadline deadline, dl_nccl_comm **comm);

/* Of a call that a communicator which does not block may still be busy with. */
dl_status dl_nccl_comm_settle(dl_nccl_watch *watch, void *handle, int result,
                              const char *call, dl_deadline deadline);

#endif
