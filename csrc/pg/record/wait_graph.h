/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The graph of what the processes of a job wait for, and the search for processes that
 * wait for each other forever.  Each process describes itself in a dl_wait_state, and
 * the graph over several of them is searched for a cycle.  Knows nothing of threads,
 * stores or groups.
 *
 * An operation waits for all ranks that it awaits: if one of them can never come, the
 * operation never ends.  A process is stuck if every thread that could call an operation
 * waits for one that is stuck.  What is unknown counts as able to continue, as a receive
 * from any rank does, so a deadlock may be missed, but is never reported wrongly. */
#ifndef DISTLITE_PG_RECORD_WAIT_GRAPH_H
#define DISTLITE_PG_RECORD_WAIT_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "pg/fingerprint.h"
#include "pg/record/doing.h"

/* A process with more rows, groups or messages than this is not judged. */
#define DL_WAIT_ROWS 16
#define DL_WAIT_GROUPS 64
#define DL_WAIT_MESSAGES 64

/* The most awaited ranks that are listed: the first ones suffice. */
#define DL_WAIT_AWAITED 64

/* The ranks that an operation waits for. */
typedef struct dl_awaited {
    int32_t ranks[DL_WAIT_AWAITED];
    /* A bit for each rank.  If set, the operation waits until the rank has begun it,
     * and not for anything that the rank does afterwards. */
    uint64_t unless_begun;
    uint32_t count;
} dl_awaited;

static inline void
dl_awaited_add(dl_awaited *awaited, int rank)
{
    if (awaited->count < DL_WAIT_AWAITED) {
        awaited->ranks[awaited->count++] = rank;
    }
}

static inline void
dl_awaited_add_unless_begun(dl_awaited *awaited, int rank)
{
    if (awaited->count < DL_WAIT_AWAITED) {
        awaited->unless_begun |= UINT64_C(1) << awaited->count;
    }
    dl_awaited_add(awaited, rank);
}

/* An operation that is waited for; ranks are those of the job. */
typedef struct dl_wait_row {
    /* of the wait; differs between waits for the same operation */
    uint64_t id;
    uint64_t count;
    int64_t waited;   /* nanoseconds since the operation was called */
    int64_t sequence; /* of a message: its tag */
    uint32_t root;    /* as in a fingerprint, in the group */
    uint32_t group;   /* index in the state */
    uint8_t op;
    uint8_t dtype;
    uint8_t reduce_op;
    uint8_t is_program; /* a thread of the program waits for it */
    dl_awaited awaited;
    char site[DL_DOING_SITE_SIZE]; /* "train.py:48 in step" */
} dl_wait_row;

/* Values of dl_wait_group.running that are no row: no operation runs, or one that
 * nobody waits for. */
#define DL_WAIT_IDLE (-1)
#define DL_WAIT_UNKNOWN (-2)

typedef struct dl_wait_group {
    char name[64];
    uint64_t begun;  /* collectives begun */
    uint32_t queued; /* asynchronous collectives that have not begun */
    int32_t running; /* row of the collective that has not ended */
} dl_wait_group;

/* A message that has not ended, whether it is waited for or not. */
typedef struct dl_wait_message {
    int64_t tag;
    int32_t peer; /* negative for any rank */
    uint32_t group;
    uint32_t op;
} dl_wait_message;

typedef struct dl_wait_state {
    uint64_t magic;
    uint64_t epoch; /* changes whenever a thread of the program begins a wait */
    uint64_t beat;  /* incremented with each description */
    int64_t pid;
    int32_t rank;
    uint32_t others; /* threads of the program that do not wait for operations */
    uint32_t is_blocked;
    uint32_t row_count;
    uint32_t group_count;
    uint32_t message_count;
    char host[64];
    dl_doing doing;
    int64_t written; /* in nanoseconds since 1970 */
    dl_wait_row rows[DL_WAIT_ROWS];
    dl_wait_group groups[DL_WAIT_GROUPS];
    dl_wait_message messages[DL_WAIT_MESSAGES];
} dl_wait_state;

/* Writes a state as bytes for another process, without the unused rows. */
void dl_wait_state_write(const dl_wait_state *state, dl_buffer *bytes);

/* Reads a state from any bytes; returns false if they are none. */
bool dl_wait_state_read(dl_bytes bytes, dl_wait_state *state);

/* Finds the ranks that the operation of `rank` in `row` waits for: the ranks that it
 * needs and that have not begun it, or whose state is unknown; for a message, its
 * peers.  Returns their number, at most `room`. */
int dl_wait_late_find(const dl_wait_state *const *states, int size, int rank, int row,
                      int *late, int room);

/* A rank in a cycle, and the operation in which it waits. */
typedef struct dl_wait_step {
    int rank;
    int row;
} dl_wait_step;

#define DL_WAIT_STEPS 32

typedef struct dl_wait_cycle {
    int count;
    /* The steps begin with the lowest rank, each waits for the next, and the last one
     * for the first. */
    dl_wait_step steps[DL_WAIT_STEPS];
} dl_wait_cycle;

/* Finds the shortest cycle through `rank`; `states` by rank, NULL for those not known.
 * Returns false if there is none, or no memory to look for it. */
bool dl_wait_cycle_find(const dl_wait_state *const *states, int size, int rank,
                        dl_wait_cycle *cycle);

#endif
