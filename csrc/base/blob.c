/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/blob.h"

#include <stdlib.h>

#include "base/references.h"

/* Also allocates (`blob` is NULL), so that one place checks the sum for overflow.  On
 * failure the old block is unchanged, as the header promises. */
static dl_blob *
resize_blob(dl_blob *blob, size_t capacity)
{
    if (capacity > SIZE_MAX - sizeof *blob) {
        return NULL;
    }
    /* NOLINTNEXTLINE(bugprone-suspicious-realloc-usage): the caller has it still */
    blob = realloc(blob, sizeof *blob + capacity);
    if (blob != NULL) {
        blob->capacity = capacity;
    }
    return blob;
}

dl_blob *
dl_blob_new(size_t size)
{
    dl_blob *blob = resize_blob(NULL, size);

    if (blob != NULL) {
        atomic_init(&blob->references, 1);
        blob->size = size;
    }
    return blob;
}

dl_blob *
dl_blob_copy(dl_bytes bytes)
{
    dl_blob *blob = dl_blob_new(bytes.size);

    if (blob != NULL && bytes.size > 0) {
        memcpy(blob->data, bytes.data, bytes.size);
    }
    return blob;
}

dl_blob *
dl_blob_ref(dl_blob *blob)
{
    /* No ordering is needed: the caller holds a reference already, and the bytes were
     * published by whatever passed the pointer on. */
    dl_reference_take(&blob->references);
    return blob;
}

void
dl_blob_unref(dl_blob *blob)
{
    /* Release: this holder's reads end before the memory is freed.  Acquire: the free
     * comes after the reads of all other holders. */
    if (blob != NULL && dl_reference_drop(&blob->references)) {
        free(blob);
    }
}

bool
dl_blob_is_unique(const dl_blob *blob)
{
    return atomic_load_explicit(&blob->references, memory_order_acquire) == 1;
}

/* Returns a blob with one reference and room for `size` bytes: `blob` itself, possibly
 * moved, or a copy, in exchange for the caller's reference.  NULL changes nothing. */
static dl_blob *
grow_unique(dl_blob *blob, size_t size)
{
    /* The answer cannot change meanwhile: only holders add references. */
    bool is_alone = dl_blob_is_unique(blob);

    if (is_alone && size <= blob->capacity) {
        return blob;
    }
    /* Growth by half keeps single-byte appends linear and the unused room bounded. */
    size_t capacity = size + size / 2;
    if (is_alone) {
        return resize_blob(blob, capacity);
    }
    dl_blob *copy = dl_blob_new(capacity);
    if (copy != NULL) {
        memcpy(copy->data, blob->data, blob->size);
        copy->size = blob->size;
        dl_blob_unref(blob);
    }
    return copy;
}

dl_status
dl_blob_append(dl_blob **blob, dl_bytes bytes)
{
    if (bytes.size == 0) {
        return DL_OK;
    }
    /* A quarter, so that growing by half cannot overflow either. */
    if (bytes.size > SIZE_MAX / 4 - (*blob)->size) {
        return dl_fail_no_memory();
    }
    dl_blob *grown = grow_unique(*blob, (*blob)->size + bytes.size);
    if (grown == NULL) {
        return dl_fail_no_memory();
    }
    memcpy(grown->data + grown->size, bytes.data, bytes.size);
    grown->size += bytes.size;
    *blob = grown;
    return DL_OK;
}

dl_status
dl_blob_reserve(dl_blob **blob, size_t capacity)
{
    if (capacity > (*blob)->capacity) {
        dl_blob *grown = resize_blob(*blob, capacity);
        if (grown == NULL) {
            return dl_fail_no_memory();
        }
        *blob = grown;
    }
    return DL_OK;
}
