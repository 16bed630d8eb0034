/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One rank's part of a window in shared memory: a head with its locks, and the elements
 * behind it.  The functions carry out accesses of ranks that have the memory mapped:
 * those of the owner's host, and the owner on behalf of ranks on other hosts. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_MEMORY_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_MEMORY_H

#include "pg/cpu/window/window_lock.h"
#include "pg/window_part.h"
#include "tensor/dtype.h"

/* Zeroed memory is a closed window; the pages of a part read as zero after its owner
 * has freed them. */
typedef struct dl_window_head {
    _Atomic uint32_t is_open;
    dl_latch updates;
    dl_lock_queue queue; /* last: one entry per rank follows */
} dl_window_head;

/* Returns the bytes in front of the elements; a multiple of a page. */
size_t dl_window_head_size(int ranks);

/* The memory of one rank, as a rank that has mapped it sees it. */
typedef struct dl_window_memory {
    dl_window_head *head; /* NULL: not mapped */
    uint8_t *elements;
    uint64_t size; /* of the elements, in bytes */
    int owner;
    dl_dtype dtype;
    size_t item_size;
} dl_window_memory;

/* Carries out an access within the memory's bounds.  DL_PEER_LOST or DL_CLOSED: the
 * owner has ended, or has closed the window. */
dl_status dl_window_memory_access(const dl_window_memory *memory,
                                  const dl_window_ranks *ranks, const dl_access *access,
                                  dl_deadline deadline);

/* Waits for the memory's lock.  Fails like dl_lock_queue_take(), or with DL_PEER_LOST or
 * DL_CLOSED as above. */
dl_status dl_window_memory_lock(const dl_window_memory *memory,
                                const dl_window_ranks *ranks,
                                const dl_lock_request *request);

/* Returns DL_OK while the owner lives and has the window open. */
dl_status dl_window_memory_check(const dl_window_memory *memory,
                                 const dl_window_ranks *ranks);

#endif
