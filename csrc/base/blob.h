/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bytes with several owners: one allocation, counted references.  A blob is not changed
 * while it has more than one, so a holder may read it, or hand it to writev(2), without
 * a lock and without a copy, however long that takes. */
#ifndef DISTLITE_BASE_BLOB_H
#define DISTLITE_BASE_BLOB_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/status.h"

typedef struct dl_blob {
    atomic_uint references;
    size_t size;
    size_t capacity;
    uint8_t data[];
} dl_blob;

/* One reference, `size` bytes for the caller to fill.  NULL when out of memory (no text
 * written). */
dl_blob *dl_blob_new(size_t size);

/* A copy of `bytes`, otherwise as dl_blob_new(). */
dl_blob *dl_blob_copy(dl_bytes bytes);

dl_blob *dl_blob_ref(dl_blob *blob);
void dl_blob_unref(dl_blob *blob); /* NULL does nothing */

/* Whether the caller's reference is the only one. */
bool dl_blob_is_alone(const dl_blob *blob);

/* Extends the caller's `*blob`, in place when nobody else holds it, at a cost that is
 * amortised over many appends.  DL_NO_MEMORY leaves it as it was. */
dl_status dl_blob_append(dl_blob **blob, dl_bytes bytes);

/* Makes room for `capacity` bytes in all in a blob that nobody else holds; the size
 * stays.  DL_NO_MEMORY leaves it as it was. */
dl_status dl_blob_reserve(dl_blob **blob, size_t capacity);

static inline dl_bytes
dl_blob_bytes(const dl_blob *blob)
{
    return (dl_bytes){blob->data, blob->size};
}

#endif
