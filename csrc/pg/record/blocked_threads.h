/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The threads of this process that are blocked in an operation, and for how long.  The
 * waits themselves write their entries between slices of sleep, and the deadlock
 * detector (pg/agree/deadlock.h) reads them.  A wait that ends before its second slice
 * writes no entry and costs one thread-local counter. */
#ifndef DISTLITE_PG_RECORD_BLOCKED_THREADS_H
#define DISTLITE_PG_RECORD_BLOCKED_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "pg/record/recording.h"
#include "pg/record/wait_graph.h"

/* Called between two slices by a thread that waits in the operation of `record`,
 * which is NULL if not recorded.  `awaited` are the ranks of the group that the
 * operation waits for; NULL for a message, which waits for its peer. */
void dl_blocked_check(const dl_record *record, const dl_awaited *awaited);

/* The same for a thread that waits for its turn in `lane`, or for one of
 * the lane's jobs. */
void dl_blocked_check_lane(const void *lane);

/* Called after the wait, whatever its outcome; may be called repeatedly. */
void dl_blocked_end(void);

/* Returns what the calling thread has last waited for in the operation of `record` that
 * has started then; NULL if its last wait was for something else. */
const dl_awaited *dl_blocked_awaited(const dl_record *record, int64_t started);

/* Marks the calling thread as one of the library's own, which calls no operation on
 * behalf of the program. */
void dl_blocked_mark_internal(void);

/* The wait of one thread, in a record or at a lane; neither is set if it
 * does not wait. */
typedef struct dl_blocked_thread {
    uint64_t id; /* of the wait; 0 if the thread does not wait */
    int64_t since;
    const dl_record *record;
    const void *lane;
    dl_awaited awaited;
    bool is_own; /* a thread of the library */
    bool is_main;
} dl_blocked_thread;

/* Copies the entries of all live threads that have ever waited for a slice.  Returns
 * false if there are more than `room`; as many as fit are copied then. */
bool dl_blocked_list(dl_blocked_thread *threads, int room, int *count);

/* Sets the function that is called after each slice of a thread of the program that has
 * waited for `span` or longer.  It is called on the waiting thread, possibly with locks
 * of the operation held, and must not block. */
typedef void (*dl_blocked_fn)(void);
void dl_blocked_watch(dl_blocked_fn call, int64_t span);

#endif
