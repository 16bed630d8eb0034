/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The members of a group's side for devices.  Shared by device.c,
 * device_batch.c and device_record.c. */
#ifndef DISTLITE_PG_DEVICE_STATE_H
#define DISTLITE_PG_DEVICE_STATE_H

#include <stdatomic.h>

#include "pg/device.h"
#include "pg/lane.h"
#include "pg/recorder.h"

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

dl_status dl_device_take_turn(dl_group *group, dl_deadline deadline);
void dl_device_pass_turn(dl_group *group);

/* Begins the items of `call`, whose member `items` need not be set.  Called with the
 * turn held. */
dl_status dl_device_enqueue(dl_group *group, dl_device_item *items, dl_device_call call,
                            dl_work **work);

/* dl_device_record_start() numbers the items and records that they begin; called with
 * the turn held.  dl_device_record_end() records failures; items that have begun are
 * completed by the end of `work`. */
void dl_device_record_start(dl_device_side *self, dl_device_item *items,
                            const dl_device_call *call);
void dl_device_record_end(dl_device_item *items, size_t count, dl_status status,
                          dl_work *work);

/* Records an item that is queued in a batch, with its call site if ranks compare calls;
 * and completes the record of one that is dropped. */
dl_status dl_device_record_queue(dl_device_side *self, dl_device_item *item,
                                 dl_deadline deadline);
void dl_device_record_forget(dl_device_item *item);

dl_status dl_device_batch_add(dl_group *group, const dl_device_item *item,
                              dl_deadline deadline);
void dl_device_batch_clear(dl_device_side *self);

#endif
