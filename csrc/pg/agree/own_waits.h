/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What this process waits for, in the form of pg/record/wait_graph.h: the threads that
 * wait (pg/record/blocked_threads.h), the operations that they wait in, as recorded by
 * the recorder, and the groups of the process.  Knows nothing of stores or other
 * ranks. */
#ifndef DISTLITE_PG_AGREE_OWN_WAITS_H
#define DISTLITE_PG_AGREE_OWN_WAITS_H

#include "pg/group.h"
#include "pg/record/recording.h"
#include "pg/record/wait_graph.h"

/* Add a group once its ranks in the job are known, and remove it at the end of its
 * life.  Both may be called repeatedly. */
void dl_own_waits_enter(dl_group *group);
void dl_own_waits_leave(dl_group *group);

/* Sets the function that counts the program's threads.  It is called on a thread of the
 * library, and returns a negative number if they cannot be counted any more. */
void dl_own_waits_count_threads(int (*count)(void));

typedef struct dl_own_waits {
    int rank; /* in the job; fixed */
    uint64_t beat;
    dl_wait_state state;
    const dl_record *record; /* of the operation that is waited for, or NULL */
    int64_t started;         /* that operation */
} dl_own_waits;

/* Describes the process anew.  Returns true if a thread of the program has waited for
 * `after` nanoseconds or longer.  The process counts as blocked if its main thread has,
 * and no other thread has ever waited in an operation. */
bool dl_own_waits_describe(dl_own_waits *self, int64_t after);

/* What the calling thread has waited for in one operation. */
typedef struct dl_own_wait {
    char group[64];
    int64_t sequence;
    bool is_message;
    dl_awaited awaited; /* ranks in the job */
} dl_own_wait;

/* Returns false if nothing is known of it. */
bool dl_own_waits_find(const dl_record *record, dl_own_wait *wait);

#endif
