/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The owner's side of a connection from one rank on another host to a window: carries
 * out its requests one by one, and appends their answers to a buffer, without I/O of its
 * own. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_SESSION_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_SESSION_H

#include "base/list.h"
#include "pg/cpu/window/window_frame.h"

/* A window whose memory is served.  The part that embeds it keeps it in place until it
 * is withdrawn. */
typedef struct dl_window_served {
    dl_list node;
    int number; /* in its group, on this rank */
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

void dl_window_session_fini(dl_window_session *session);

/* Carries out a request, for which dl_window_frame_is_request() is true, and appends the
 * answer if it has one.  `payload` has head->size bytes, and is aligned as by malloc(3).
 * After a failure, DL_PROTOCOL or DL_NO_MEMORY, the rank has to be disconnected. */
dl_status dl_window_session_answer(dl_window_session *session,
                                   const dl_window_served *window, const dl_head *head,
                                   const uint8_t *payload);

#endif
