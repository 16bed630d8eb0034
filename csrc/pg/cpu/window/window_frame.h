/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The frames of a window between hosts (docs/wire.md): what their kinds are, what the
 * fields of a head (pg/cpu/tcp/frame.h) mean, and whether a request is one that a window
 * can carry out.  A rank sends requests over a link of its own to the owner of the
 * memory, which carries them out in their order.
 *
 *              root        tag      total   length          payload
 * PUT          -           offset   size    -               contents
 * GET          -           offset   size    -               -
 * UPDATE       update      offset   size    factor's bits   input, if any
 * FETCH        update      offset   size    factor's bits   input, if any
 * SWAP         -           offset   size    -               input, compared
 * LOCK         is shared   -        -       limit in ns     -
 * UNLOCK       -           -        -       -               -
 * FLUSH        -           -        -       -               -
 * DONE         -           -        -       -               contents, if any
 * FAILED       dl_status   -        -       -               text
 *
 * PUT and UPDATE are not answered.  Each other request is answered by DONE or FAILED
 * with its id; the failure of a PUT or an UPDATE is the answer to the next request that
 * has one.  Offsets and sizes are bytes.  An UNLOCK that arrives while the LOCK waits
 * ends the wait, and the LOCK has no answer then.  Requests have ids from 1 on; a FAILED
 * with id 0 is the last frame, after the owner has closed the window. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_FRAME_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_FRAME_H

#include <stdbool.h>

#include "pg/cpu/tcp/frame.h"
#include "pg/cpu/window/window_memory.h"

/* The numbers never change. */
typedef enum dl_window_frame {
    DL_WINDOW_PUT = 1,
    DL_WINDOW_GET = 2,
    DL_WINDOW_UPDATE = 3,
    DL_WINDOW_FETCH = 4,
    DL_WINDOW_SWAP = 5,
    DL_WINDOW_LOCK = 6,
    DL_WINDOW_UNLOCK = 7,
    DL_WINDOW_FLUSH = 8,
    DL_WINDOW_DONE = 32,
    DL_WINDOW_FAILED = 33,
} dl_window_frame;

/* Returns whether the owner answers a frame of this kind. */
bool dl_window_frame_is_answered(uint8_t kind);

/* Returns the head of an access, whose size is at most DL_PART_LIMIT / 2 for a swap and
 * DL_PART_LIMIT otherwise.  The caller sets the id. */
dl_head dl_window_frame_of(const dl_access *access);

/* Writes the last frame of a connection to a window that is closed; returns its size. */
size_t dl_window_frame_put_closed(uint8_t frame[DL_HEAD_SIZE]);

/* Returns whether a head that has come from another rank is a request. */
bool dl_window_frame_is_request(const dl_head *head);

/* Describes the access that a request between DL_WINDOW_PUT and DL_WINDOW_SWAP asks for,
 * in memory of that size.  `payload` has head->size bytes.  An answered request reads
 * access->size bytes into an output that the caller adds.  DL_PROTOCOL: the request is
 * none that a window of this version makes. */
dl_status dl_window_frame_access(const dl_head *head, const uint8_t *payload,
                                 const dl_window_memory *memory, dl_access *access);

#endif
