/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which threads of this process wait for an operation, and for how long: written by the
 * waits themselves between slices of sleep, read by whoever looks for deadlocks
 * (pg/deadlock.h).  A wait that ends before its second slice leaves no trace and costs a
 * counter of the thread's own. */
#ifndef DISTLITE_PG_BLOCKED_THREADS_H
#define DISTLITE_PG_BLOCKED_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "pg/recording.h"
#include "pg/wait_graph.h"

/* Between two slices: the calling thread waits in the operation of `record`, NULL for one
 * that is not recorded, for `awaited`, ranks of its group; NULL for a message, which waits
 * for its peer.  The operation fails at `deadline`. */
void dl_blocked_look(const dl_record *record, const dl_awaited *awaited,
                     dl_deadline deadline);

/* The same for a thread that waits until a lane gets on. */
void dl_blocked_look_at_lane(const void *lane);

/* After the wait, whatever came of it; any number of times. */
void dl_blocked_end(void);

/* The calling thread is none of the program's: it never calls an operation by itself. */
void dl_blocked_disown(void);

/* What a thread waits for; of a lane or of a record, and neither if it does not wait. */
typedef struct dl_blocked_thread {
    uint64_t id; /* of the wait; 0: none */
    int64_t since;
    const dl_record *record;
    const void *lane;
    dl_awaited awaited;
    dl_deadline deadline;
    bool is_own; /* of the library */
    bool is_main;
} dl_blocked_thread;

/* Copies those of all threads that have ever waited and have not ended.  False: there are
 * more than `room`. */
bool dl_blocked_list(dl_blocked_thread *threads, int room, int *count);

/* Called after each slice of a thread of the program that has waited for `span` or longer,
 * and of any thread whose operation is to fail soon; it must not wait for anything.  NULL:
 * nobody is. */
typedef void (*dl_blocked_fn)(bool fails_soon);
void dl_blocked_watch(dl_blocked_fn call, int64_t span);

#endif
