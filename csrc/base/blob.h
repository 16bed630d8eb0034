/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reference-counted bytes in one allocation.  A blob with more than one reference is
 * never modified, so a holder may read it, or pass it to writev(2), without a lock and
 * without a copy, for as long as it keeps its reference. */
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

/* Returns a blob of `size` uninitialised bytes with one reference, which the caller
 * owns; NULL when memory runs out (no error text is written). */
dl_blob *dl_blob_new(size_t size);

/* Returns a new blob with a copy of `bytes`; otherwise as dl_blob_new(). */
dl_blob *dl_blob_copy(dl_bytes bytes);

/* Adds a reference and returns `blob`; the caller must hold a reference already. */
dl_blob *dl_blob_ref(dl_blob *blob);

/* Drops a reference; the last one frees the blob.  NULL does nothing. */
void dl_blob_unref(dl_blob *blob);

/* Returns whether the caller's reference is the only one. */
bool dl_blob_is_unique(const dl_blob *blob);

/* Appends `bytes` to `*blob`, in place if the caller's reference is the only one,
 * otherwise to a copy that replaces it.  The cost is amortised over many appends.
 * DL_NO_MEMORY leaves `*blob` unchanged. */
dl_status dl_blob_append(dl_blob **blob, dl_bytes bytes);

/* Raises the capacity to `capacity` bytes in all; the size does not change.  The
 * caller's reference must be the only one.  DL_NO_MEMORY leaves `*blob` unchanged. */
dl_status dl_blob_reserve(dl_blob **blob, size_t capacity);

static inline dl_bytes
dl_blob_bytes(const dl_blob *blob)
{
    return (dl_bytes){blob->data, blob->size};
}

#endif
