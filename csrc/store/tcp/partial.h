/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Input that cannot be served yet: the beginning of a request that has not arrived
 * completely, or requests of a stalled session.
 *
 * Memory grows with the bytes that have arrived, not with the sizes that are announced.
 * The value of a large SET is received into the blob that the table will keep, so that
 * its bytes are copied at most once. */
#ifndef DISTLITE_STORE_TCP_PARTIAL_H
#define DISTLITE_STORE_TCP_PARTIAL_H

#include "base/blob.h"
#include "store/tcp/wire.h"

typedef struct dl_partial {
    dl_wire_cursor cursor; /* decodes the first request in `held` */
    dl_buffer held;        /* only the head of a SET whose value is being received */
    dl_blob *value;        /* the part of it that has arrived; NULL: no such SET */
    size_t value_size;     /* the size that was announced */
} dl_partial;

/* Keeps `bytes`, which start with the request that `cursor` decodes.  On failure
 * `*partial` may be set, too; the caller frees it then. */
dl_status dl_partial_new(const dl_wire_cursor *cursor, dl_bytes bytes,
                         dl_partial **partial);
void dl_partial_free(dl_partial *partial); /* NULL does nothing */

/* Appends bytes to those held.  Not to be called while a value is being received. */
dl_status dl_partial_hold(dl_partial *partial, dl_bytes bytes);

/* Drops all held bytes but the last `size`, which start with the request that the
 * cursor decodes. */
dl_status dl_partial_keep_last(dl_partial *partial, size_t size);

/* Returns whether the next bytes belong to a value that is being received. */
bool dl_partial_is_receiving(const dl_partial *partial);

/* Returns where the next bytes should be received, which saves a copy.  Returns false
 * when they may be received anywhere. */
bool dl_partial_room(dl_partial *partial, uint8_t **data, size_t *size);

/* Adds the bytes of the value to it and removes them from the front of `bytes`. */
dl_status dl_partial_receive(dl_partial *partial, dl_bytes *bytes);

/* Fills `request` with the SET whose value has been received.  The caller owns the
 * reference in `blob`; its key points into `held`. */
void dl_partial_take_value(dl_partial *partial, dl_store_request *request);

#endif
