/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What this process waits for, as pg/wait_graph.h describes it: the threads that wait
 * (pg/blocked_threads.h), the operations that they wait in, as the recorder has them, and
 * the groups of the process.  Knows nothing of stores or other ranks. */
#ifndef DISTLITE_PG_OWN_WAITS_H
#define DISTLITE_PG_OWN_WAITS_H

#include "pg/group.h"
#include "pg/recording.h"
#include "pg/wait_graph.h"

/* From dl_group_new() to the end of the group's life. */
void dl_own_waits_enter(dl_group *group);
void dl_own_waits_leave(dl_group *group);

/* Of the groups of this process; INT64_MAX where none has one. */
int64_t dl_own_waits_shortest_timeout(void);

/* How many threads the program has; called on a thread of the library.  Negative: they
 * cannot be counted any more. */
void dl_own_waits_count_threads(int (*count)(void));

typedef struct dl_own_waits {
    int rank; /* in the job; fixed */
    uint64_t beat;
    dl_wait_state state;
    const dl_record *records[DL_WAIT_ROWS]; /* of the state's rows, */
    int64_t started[DL_WAIT_ROWS];
    bool fails_soon[DL_WAIT_ROWS];
    uint32_t serials[DL_WAIT_GROUPS]; /* and groups */
    bool has_failing;                 /* some row fails soon */
} dl_own_waits;

/* Describes the process anew.  Whether a thread of the program has waited for `after`
 * nanoseconds or longer, or an operation is to fail soon.  A process whose threads have all waited for so long is blocked. */
bool dl_own_waits_describe(dl_own_waits *self, int64_t after);

/* The group of a row of the state, counted; NULL: it is gone. */
dl_group *dl_own_waits_group(const dl_own_waits *self, const dl_wait_row *row);

#endif
