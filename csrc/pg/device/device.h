/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of a group that serves arrays on devices.  They have a side of their own,
 * whose backend is made with the first such array and returns from an operation as soon
 * as it is enqueued on a stream; or the CPU's side serves them by copies in its memory
 * (staging.h).  A thread may open a batch on a side for devices: the operations that it
 * begins until the batch ends are issued together. */
#ifndef DISTLITE_PG_DEVICE_DEVICE_H
#define DISTLITE_PG_DEVICE_DEVICE_H

#include "pg/backend.h"
#include "pg/group.h"

typedef struct dl_device_side dl_device_side;

/* Serves arrays in CUDA memory by the backend of this name, such as "nccl", or, if it is
 * the group's own backend for the CPU's memory, by that one.  Called before the group is
 * used.  DL_INVALID if there is no such backend.  A missing library is reported with the
 * first array, unless dl_device_connect() is called before. */
dl_status dl_device_serve(dl_group *group, const char *name,
                          const dl_device_options *options);

/* Makes dl_device_barrier() wait for the device.  Called before the group is used. */
void dl_device_take_barriers(dl_group *group);
bool dl_device_takes_barriers(const dl_group *group);

/* Waits until the streams of all ranks have reached their call.  Does nothing, on all
 * ranks alike, if the group does not take barriers or its ranks have not met on a
 * device yet. */
dl_status dl_device_barrier(dl_group *group, void *stream, dl_deadline deadline);

/* Returns whether arrays on devices are served. */
bool dl_device_is_served(const dl_group *group);

/* Returns the name of the backend of the side for devices; NULL if there is none. */
const char *dl_device_name(const dl_group *group);

/* Makes the communicator of all ranks now instead of with the first operation. */
dl_status dl_device_connect(dl_group *group, int index, dl_deadline deadline);

/* Checks that an array on a device can be served: the group has a backend for it and
 * the array is contiguous. */
dl_status dl_device_check(const dl_group *group, const dl_tensor *tensor,
                          const char *name);

/* Checks that the backend sends messages from arrays on devices. */
dl_status dl_device_check_message(const dl_group *group, const char *name);

/* Begins an operation that was checked, by the side for devices; or adds it to the
 * thread's open batch, which stores NULL in `*work`. */
dl_status dl_device_enqueue(dl_group *group, const dl_op *op, dl_work **work);

/* Begins an operation and orders the stream of its arrays after it.  With
 * TORCH_NCCL_BLOCKING_WAIT, or arrays that ignore streams, the operation is over on
 * return. */
dl_status dl_device_run(dl_group *group, const dl_op *op);

/* Returns the name of the backend that gets arrays on devices, for texts. */
const char *dl_device_backend_name(const dl_group *group);

/* Returns true if TORCH_NCCL_BLOCKING_WAIT makes waits block the host. */
bool dl_device_blocks(void);

/* Open and end a batch; the thread holds the turn in between.  The end gives a work, or
 * NULL for an empty batch; with `is_dropped`, nothing is begun. */
dl_status dl_device_batch_begin(dl_group *group, dl_deadline deadline);
dl_status dl_device_batch_end(dl_group *group, bool is_dropped, dl_deadline deadline,
                              dl_work **work);

/* Returns true if this thread has a batch open on the group. */
bool dl_device_is_batching(const dl_group *group);

/* Stores what another group can follow from this one by (DL_DEVICE_...), after waiting
 * until the deadline for its operations in progress; 0 if the group has failed, or if
 * they have not ended.  Fails only when it is interrupted. */
dl_status dl_device_ways(dl_group *group, dl_deadline deadline, int *ways);

/* Lets `child` follow from the parent: by splitting, on all ranks of the parent, with a
 * child of NULL on a rank that is in no part; otherwise on all ranks of the child, with
 * a parent of NULL on those that the parent does not have. */
dl_status dl_device_split(dl_group *parent, const dl_device_split_args *wanted,
                          dl_deadline deadline, dl_group *child);

/* Frees the side, with the group. */
void dl_device_free(dl_group *group);

#endif
