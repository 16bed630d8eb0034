/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The interface between a window (pg/window.h) and the backend that reaches its memory.
 * The window has checked ranks, bounds and dtypes, and passes contiguous, aligned
 * memory. */
#ifndef DISTLITE_PG_WINDOW_PART_H
#define DISTLITE_PG_WINDOW_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"
#include "tensor/tensor.h"

typedef struct dl_window_part dl_window_part;

typedef struct dl_window_options {
    dl_dtype dtype;
    size_t item_size;
    uint64_t size; /* of this rank's memory, in bytes */
} dl_window_options;

typedef enum dl_access_kind {
    DL_ACCESS_PUT = 1,
    DL_ACCESS_GET = 2,
    DL_ACCESS_UPDATE = 3,
    DL_ACCESS_SWAP = 4,
} dl_access_kind;

/* Updates in addition to those of dl_reduce_op.  The numbers are part of the wire. */
#define DL_UPDATE_REPLACE 32 /* the element becomes the input */
#define DL_UPDATE_NOTHING 33 /* the element stays, and is read atomically */

/* The largest element that is updated atomically. */
#define DL_UPDATE_ITEM_LIMIT ((size_t)65536)

/* `size` bytes from byte `offset` on in the memory of `rank`.  The pointers are to as
 * many bytes, or NULL as in pg/window.h. */
typedef struct dl_access {
    dl_access_kind kind;
    int rank;
    uint64_t offset;
    size_t size;
    const void *input;
    const void *compared;
    void *output;
    int update;
    double factor;
} dl_access;

typedef struct dl_window_part_ops {
    /* Called once all ranks have made their parts.  `handles` are those of all ranks,
     * by rank; `sizes` the sizes of their memory.  Both are borrowed. */
    dl_status (*join)(dl_window_part *, const uint8_t *handles, const uint64_t *sizes);
    /* These four may be called from any thread, once the part has joined. */
    dl_status (*access)(dl_window_part *, const dl_access *, dl_deadline);
    dl_status (*lock)(dl_window_part *, int rank, bool is_shared, dl_deadline);
    dl_status (*unlock)(dl_window_part *, int rank, dl_deadline);
    dl_status (*flush)(dl_window_part *, int rank, dl_deadline);
    /* Accesses of other ranks fail from now on.  Idempotent; any thread. */
    void (*end)(dl_window_part *);
    /* No thread uses the part any more.  In a forked child it touches nothing that is
     * shared with the parent. */
    void (*free)(dl_window_part *);
} dl_window_part_ops;

/* What other ranks need to reach a part; its meaning is the backend's. */
#define DL_WINDOW_HANDLE_SIZE 32

/* The first member of every backend's part. */
struct dl_window_part {
    const dl_window_part_ops *ops;
    void *memory; /* of this rank; aligned to pages */
    uint8_t handle[DL_WINDOW_HANDLE_SIZE];
};

#endif
