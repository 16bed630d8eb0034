/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The members of a group's side for devices, for the files of this folder and for
 * group.c, which closes both sides alike. */
#ifndef DISTLITE_PG_DEVICE_DEVICE_STATE_H
#define DISTLITE_PG_DEVICE_DEVICE_STATE_H

#include <stdatomic.h>

#include "pg/device/device.h"
#include "pg/group_state.h"

struct dl_device_side {
    dl_side side; /* its sequence numbers are separate from the CPU side's */
    /* fixed after init */
    dl_device_options options;
    bool takes_barriers;
    /* The thread that has a batch open, and with it the turn, by the address of its
     * thread-local `own`; NULL if there is none. */
    _Atomic(const void *) batcher;
    /* guarded by the turn */
    dl_op *batch; /* owns the calls */
    size_t batch_count;
    size_t batch_capacity;
};

#endif
