/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The members of a group's side for devices, for device.c and for group.c, which
 * retires the lane. */
#ifndef DISTLITE_PG_DEVICE_DEVICE_STATE_H
#define DISTLITE_PG_DEVICE_DEVICE_STATE_H

#include <stdatomic.h>

#include "pg/device/device.h"
#include "pg/lane.h"
#include "pg/record/recorder.h"

struct dl_device_side {
    /* fixed after init */
    const char *name;
    dl_device_backend_new_fn make;
    dl_device_options options;
    bool is_detailed; /* ranks compare their calls */
    bool takes_barriers;
    dl_seat seat; /* its sequence numbers are separate from the CPU side's */
    dl_lane lane;
    /* guarded by the turn */
    uint64_t sequence;
    /* guarded by the turn; changed with the group's lock held as well */
    dl_device_backend *backend;
    /* The thread that has a batch open, and with it the turn, by the address of its
     * thread-local `own`; NULL if there is none. */
    _Atomic(const void *) batcher;
    /* guarded by the turn */
    dl_device_item *batch; /* each with a copy of its arguments */
    size_t batch_count;
    size_t batch_capacity;
};

#endif
