/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Page-locked memory of the host, which devices copy from and to directly, with a stream
 * for its copies.  Making it takes longer than most copies, so a group keeps the memory
 * of its last operation for the next one, unless it is larger than DL_PINNED_LIMIT. */
#ifndef DISTLITE_PG_DEVICE_PINNED_H
#define DISTLITE_PG_DEVICE_PINNED_H

#include <stddef.h>

#include "pg/device/cuda_table.h"

#define DL_PINNED_LIMIT ((size_t)512 << 20)

typedef struct dl_pinned {
    const dl_cuda_table *cuda;
    void *memory;
    size_t size;
    void *stream;
    int device;
} dl_pinned;

/* Leaves in `*pinned` at least `size` bytes whose stream is on `device`, the thread's
 * current one: what is there, if it will do, or else new memory in its place.  It is
 * NULL after a failure. */
dl_status dl_pinned_reserve(const dl_cuda_table *cuda, int device, size_t size,
                            dl_pinned **pinned);

/* Frees memory that no copy uses any more.  NULL does nothing. */
void dl_pinned_free(dl_pinned *pinned);

#endif
