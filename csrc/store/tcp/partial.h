/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is kept of requests that cannot be served yet: the beginning of one that has not
 * arrived whole (and whole ones behind it, of a client that has to take replies first).
 *
 * Memory follows what has arrived, never what was announced.  The bytes of a large SET's
 * value are received into the blob that the table will keep, so that they are copied at
 * most once. */
#ifndef DISTLITE_STORE_TCP_PARTIAL_H
#define DISTLITE_STORE_TCP_PARTIAL_H

#include "base/blob.h"
#include "store/tcp/wire.h"

typedef struct dl_partial {
    dl_wire_cursor cursor; /* of the first request in `held` */
    dl_buffer held;        /* of a SET whose value is being received: only its head */
    dl_blob *value;        /* what has arrived of that; NULL: no such SET */
    size_t value_size;     /* what was announced */
} dl_partial;

/* `bytes` start with the request that `cursor` is about.  `*partial` is set on failure
 * too, once there is one. */
dl_status dl_partial_new(const dl_wire_cursor *cursor, dl_bytes bytes,
                         dl_partial **partial);
void dl_partial_free(dl_partial *partial); /* NULL does nothing */

/* More bytes behind those held; not while a value is being received. */
dl_status dl_partial_hold(dl_partial *partial, dl_bytes bytes);

/* Forgets all that is held but the last `size` bytes, whose first belongs to the request
 * that the cursor is about. */
dl_status dl_partial_keep_last(dl_partial *partial, size_t size);

/* Whether the next bytes belong to a value that is being received. */
bool dl_partial_is_receiving(const dl_partial *partial);

/* Where they had better be read to.  False: anywhere. */
bool dl_partial_room(dl_partial *partial, uint8_t **data, size_t *size);

/* Takes what belongs to the value off the front of `bytes`. */
dl_status dl_partial_receive(dl_partial *partial, dl_bytes *bytes);

/* The SET whose value has been received; its `blob` is the caller's. */
void dl_partial_take_value(dl_partial *partial, dl_store_request *request);

#endif
