/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The owner's side of a link from one rank on another host to a window: turns received
 * bytes into bytes to send, without I/O of its own.  A session belongs to one window,
 * which its first request names. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_SESSION_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_SESSION_H

#include "base/list.h"
#include "pg/cpu/window/window_frame.h"

/* A window whose memory is served.  The part that embeds it keeps it in place until it
 * is withdrawn. */
typedef struct dl_window_served {
    dl_list node;
    uint32_t number; /* in its group, on this rank */
    const dl_window_memory *memory;
    const dl_window_ranks *ranks;
} dl_window_served;

/* Output beyond which no further request is carried out until it was sent. */
#define DL_WINDOW_OUTPUT_LIMIT ((size_t)2 << 20)

typedef struct dl_window_session {
    int caller;               /* rank in the group */
    const dl_list *windows;   /* of dl_window_served; borrowed */
    dl_window_served *window; /* NULL: none named yet, or withdrawn */
    bool is_bound;            /* some request has named a window */
    dl_buffer in;             /* the caller of these functions appends to it */
    dl_buffer aligned;        /* the input of an update */
    dl_buffer out;            /* the caller of these functions sends and consumes it */
    dl_error late;            /* the first failure since the last answer; DL_OK: none */
    /* a lock that was not granted yet */
    bool is_waiting;
    uint64_t lock_id;
    dl_deadline lock_deadline;
    bool has_lock;
} dl_window_session;

void dl_window_session_init(dl_window_session *session, int caller,
                            const dl_list *windows);

/* Ends the session: a rank that still holds the lock counts as lost, unless it
 * reconnects within a second. */
void dl_window_session_fini(dl_window_session *session);

/* Carries out the complete requests in `in`, to which the caller appends what it has
 * received, and those that waited for output to be sent or for a lock.  After a
 * failure, DL_PROTOCOL or DL_NO_MEMORY, the caller disconnects the rank. */
dl_status dl_window_session_step(dl_window_session *session);

/* The window is not served any more. */
void dl_window_session_withdraw(dl_window_session *session,
                                const dl_window_served *window);

#endif
