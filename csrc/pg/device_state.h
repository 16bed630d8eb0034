/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a group's side for devices is made of: for device.c and device_batch.c. */
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
    bool is_detailed; /* ranks compare what they call */
    bool takes_barriers;
    dl_seat seat; /* its numbers are not those of the CPU's side */
    dl_lane lane;
    /* with the turn */
    uint64_t sequence;
    /* with the turn; changed with the group's lock held as well */
    dl_device_backend *backend;
    /* The thread that has a batch open and the turn with it, as an address of its own;
     * NULL: none. */
    _Atomic(const void *) batcher;
    /* with the turn */
    dl_device_item *batch; /* each with a copy of its arguments */
    size_t batch_count;
    size_t batch_capacity;
};

dl_status dl_device_take_turn(dl_group *group, dl_deadline deadline);
void dl_device_pass_turn(dl_group *group);

/* With the turn; `call` without its items. */
dl_status dl_device_enqueue(dl_group *group, dl_device_item *items, dl_device_call call,
                            dl_work **work);

/* Numbers the items and writes down that they begin, with the turn; and how that went:
 * of those that did, the end is the work's. */
void dl_device_record_start(dl_device_side *self, dl_device_item *items,
                            const dl_device_call *call);
void dl_device_record_end(dl_device_item *items, size_t count, dl_status status,
                          dl_work *work);

/* An item of a batch: with its line, if anybody wants that; and its end. */
dl_status dl_device_record_queue(dl_device_side *self, dl_device_item *item,
                                 dl_deadline deadline);
void dl_device_record_forget(dl_device_item *item);

/* Whether this thread has a batch open. */
bool dl_device_is_batching(const dl_device_side *self);
dl_status dl_device_batch_add(dl_group *group, const dl_device_item *item,
                              dl_deadline deadline);
void dl_device_batch_clear(dl_device_side *self);

#endif
