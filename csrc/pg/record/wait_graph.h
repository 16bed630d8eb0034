/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The graph of what the processes of a job wait for, and the search for processes that
 * wait for each other forever.  Each process describes itself in a dl_wait_state, and
 * the graph over several of them is searched for a cycle.  Knows nothing of threads,
 * stores or groups.
 *
 * A process in the graph has one thread that calls operations, which waits in one: for
 * all ranks that the operation awaits.  So whoever is in a cycle never leaves it.  What
 * is unknown counts as able to continue, as a receive from any rank does, so a deadlock
 * may be missed, but is never reported wrongly. */
#ifndef DISTLITE_PG_RECORD_WAIT_GRAPH_H
#define DISTLITE_PG_RECORD_WAIT_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "pg/fingerprint.h"
#include "pg/record/doing.h"

/* A process with more groups or messages than this is not judged. */
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

typedef struct dl_wait_group {
    char name[64];
    uint64_t begun; /* collectives begun */
    /* Others than the one that is waited for have not ended, and may go on. */
    uint64_t is_busy;
} dl_wait_group;

/* A message that has not ended, whether it is waited for or not. */
typedef struct dl_wait_message {
    int64_t tag;
    int32_t peer; /* in the job, like all ranks here; negative for any rank */
    uint32_t group;
    uint32_t op;
} dl_wait_message;

typedef struct dl_wait_state {
    uint64_t magic;
    uint64_t id;   /* of the wait; differs between waits for the same operation */
    uint64_t beat; /* incremented with each description */
    int32_t rank;
    uint32_t others;     /* threads of the program that do not wait for operations */
    uint32_t is_blocked; /* without it, the process does not wait, or may go on */
    uint32_t group;      /* of the operation; an index, as in the messages */
    uint32_t group_count;
    uint32_t message_count;
    dl_doing doing; /* the operation */
    dl_awaited awaited;
    dl_wait_group groups[DL_WAIT_GROUPS];
    dl_wait_message messages[DL_WAIT_MESSAGES];
} dl_wait_state;

/* Writes a state as bytes for another process, without the unused rows. */
void dl_wait_state_write(const dl_wait_state *state, dl_buffer *bytes);

/* Reads a state from any bytes; returns false if they are none. */
bool dl_wait_state_read(dl_bytes bytes, dl_wait_state *state);

#define DL_WAIT_STEPS 32

typedef struct dl_wait_cycle {
    int count;
    /* They begin with the lowest, each waits for the next, and the last one for the
     * first. */
    int ranks[DL_WAIT_STEPS];
} dl_wait_cycle;

/* Finds the shortest cycle through `rank`; `states` by rank, NULL for those not known.
 * Returns false if there is none, or no memory to look for it. */
bool dl_wait_cycle_find(dl_wait_state *const *states, int size, int rank,
                        dl_wait_cycle *cycle);

#endif
