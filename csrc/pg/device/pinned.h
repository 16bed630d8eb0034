/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Page-locked memory of the host, which devices copy from and to directly, each piece
 * with a stream for its copies.  Making it takes longer than most copies, so pieces are
 * kept for later operations of the process, up to DL_PINNED_LIMIT bytes in all; a larger
 * one is freed after its operation. */
#ifndef DISTLITE_PG_DEVICE_PINNED_H
#define DISTLITE_PG_DEVICE_PINNED_H

#include <stddef.h>

#include "pg/device/cuda_table.h"

#define DL_PINNED_LIMIT ((size_t)512 << 20)

typedef struct dl_pinned {
    struct dl_pinned *next;
    const dl_cuda_table *cuda;
    void *memory;
    size_t size;
    void *stream;
    int device;
} dl_pinned;

/* Takes a piece of at least `size` bytes whose stream is on `device`, the thread's
 * current one. */
dl_status dl_pinned_take(const dl_cuda_table *cuda, int device, size_t size,
                         dl_pinned **pinned);

/* Gives a piece back, which no copy uses any more. */
void dl_pinned_give(dl_pinned *pinned);

/* Count the groups that may take pieces; the last one to leave frees what is kept. */
void dl_pinned_join(void);
void dl_pinned_leave(void);

#endif
