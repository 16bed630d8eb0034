/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A group's side for arrays on devices: which backend serves them, made with the first of
 * them, and whose turn it is.  It knows nothing of the CPU's side, and neither waits for
 * the other.  An operation comes back as soon as it is in the order of streams.  A thread
 * may open a batch: what it begins until the batch's end goes out together. */
#ifndef DISTLITE_PG_DEVICE_H
#define DISTLITE_PG_DEVICE_H

#include "pg/device_backend.h"
#include "pg/group.h"

typedef struct dl_device_side dl_device_side;

/* From now on arrays in CUDA memory go to the backend of this name, "nccl"; before the
 * group is used.  DL_INVALID: there is none of the name; what the library lacks comes to
 * light with the first array, unless it is connected before. */
dl_status dl_device_serve(dl_group *group, const char *name,
                          const dl_device_options *options);

/* From now on dl_device_barrier() waits for the device; before the group is used. */
void dl_device_take_barriers(dl_group *group);
bool dl_device_takes_barriers(const dl_group *group);

/* Waits until all ranks' streams have come to their call, where the group takes barriers
 * and its ranks have met; else it does nothing, on all ranks alike. */
dl_status dl_device_barrier(dl_group *group, void *stream, dl_deadline deadline);

/* The backend's name; NULL: no array on a device is served. */
const char *dl_device_name(const dl_group *group);

/* Makes the communicator of all ranks now. */
dl_status dl_device_connect(dl_group *group, int index, dl_deadline deadline);

/* Whether any of the operation's arrays is on a device. */
bool dl_device_takes(const dl_group *group, dl_op_type op, const void *args);

/* What all arrays of an operation must be: on one device, and without gaps. */
dl_status dl_device_check(const dl_group *group, const dl_tensor *tensor,
                          const char *name);

/* Begins an operation that was checked.  `*work` is NULL if it is now part of a batch. */
dl_status dl_device_submit(dl_group *group, const dl_device_item *item,
                           dl_deadline deadline, dl_work **work);

/* The same, and the stream of the arrays goes on after it; with TORCH_NCCL_BLOCKING_WAIT,
 * or with a backend whose works are the host's, it is over on return. */
dl_status dl_device_run(dl_group *group, const dl_device_item *item,
                        dl_deadline deadline);

/* Whether TORCH_NCCL_BLOCKING_WAIT asks for waits that wait. */
bool dl_device_blocks(void);

/* Until the end, the thread has the turn.  The end gives a work, NULL for an empty one;
 * with `is_dropped`, nothing is begun. */
dl_status dl_device_batch_begin(dl_group *group, dl_deadline deadline);
dl_status dl_device_batch_end(dl_group *group, bool is_dropped, dl_deadline deadline,
                              dl_work **work);

/* All of the parent's ranks call it; `child` is NULL where this one is in none. */
dl_status dl_device_part(dl_group *parent, const dl_device_parting *parting,
                         dl_deadline deadline, dl_group *child);

/* For group.c.  The first with the group's lock held. */
void dl_device_abort_locked(dl_group *group, const dl_error *cause, bool is_leaving);
void dl_device_free_if_closed(dl_group *group);
void dl_device_free(dl_group *group);

#endif
