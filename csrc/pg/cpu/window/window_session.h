/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The requests to a window from a rank on another host (docs/wire.md): their form, and how
 * the owner of the memory carries them out, one by one.  The answers are appended to a
 * buffer, without I/O.  The fields of a head (pg/cpu/tcp/frame.h) are:
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
 * PUT and UPDATE are not answered.  Each other request is answered by DONE or FAILED, in
 * the order of the requests; the failure of a PUT or an UPDATE is the answer to the next
 * request that has one.  Offsets and sizes are bytes.  An UNLOCK that arrives while the
 * LOCK waits ends the wait, and the LOCK has no answer then.  A NOTICE is the last frame,
 * after the owner has closed the window or the group has ended. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_SESSION_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_SESSION_H

#include "base/list.h"
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

/* Returns whether the owner answers a request of this kind. */
bool dl_window_is_answered(uint8_t kind);

/* Returns the head of an access, whose size is at most DL_PART_LIMIT / 2 for a swap and
 * DL_PART_LIMIT otherwise. */
dl_head dl_window_head_of(const dl_access *access);

/* A window whose memory is served.  The part that embeds it keeps it in place until it
 * is withdrawn. */
typedef struct dl_window_served {
    dl_list node;
    int number; /* in its group, on this rank; 0: it is not served */
    const dl_window_memory *memory;
    const dl_window_ranks *ranks;
    int ending; /* eventfd, which is never read: wakes the threads that serve it */
    atomic_bool is_ending;
} dl_window_served;

typedef struct dl_window_session {
    int caller;    /* rank in the group */
    dl_buffer out; /* the caller of these functions sends and clears it */
    dl_error late; /* the first failure since the last answer; DL_OK: none */
    /* Called between the sleeps of a wait for the lock, and ends the wait by a failure:
     * DL_INTERRUPTED if the rank does not wait any more, which is not answered. */
    dl_status (*check_wait)(void *context);
    void *context;
} dl_window_session;

/* Carries out a request, and appends the answer if it has one.  `head` comes from the
 * network; `payload` has head->size bytes, and is aligned as by malloc(3).  After a
 * failure, DL_PROTOCOL or DL_NO_MEMORY, the rank has to be disconnected. */
dl_status dl_window_session_answer(dl_window_session *session,
                                   const dl_window_served *window, const dl_head *head,
                                   const uint8_t *payload);

#endif
