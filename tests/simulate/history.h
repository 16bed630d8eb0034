/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What clients asked of a store, and what they were told.  A history is right if there
 * is one order of the operations on each key that explains all replies, in which an
 * operation that ended before another began comes first (linearizability: Herlihy and
 * Wing, 1990).  The outcome of a change that failed is unknown: it happened once, at
 * any later time, or never. */
#ifndef DISTLITE_SIMULATE_HISTORY_H
#define DISTLITE_SIMULATE_HISTORY_H

#include "world.h"

#define SIM_VALUE_SIZE 128

typedef enum sim_verb {
    SIM_SET,
    SIM_GET,
    SIM_ADD,
    SIM_EXISTS,
    SIM_ABSENT, /* a wait that ended because the key was absent then */
    SIM_DELETE,
    SIM_COMPARE_SET,
    SIM_APPEND,
    SIM_PUSH,
    SIM_POP,
    SIM_LENGTH,
} sim_verb;

typedef enum sim_outcome { SIM_UNKNOWN, SIM_DONE, SIM_DROPPED } sim_outcome;

typedef struct sim_operation {
    sim_verb verb;
    int key;
    sim_outcome outcome;
    int64_t begun, ended;
    int64_t number; /* ADD: the delta */
    char argument[SIM_VALUE_SIZE];
    char expected[SIM_VALUE_SIZE];
    int64_t told;             /* the sum, the length, 0 or 1 */
    char got[SIM_VALUE_SIZE]; /* POP: "" if the queue was empty */
    const char *who;
} sim_operation;

/* Returns a new operation that begins now, and whose outcome is unknown. */
sim_operation *sim_history_begin(sim_verb verb, int key);

/* A crash of the host may have undone what ended after `since`. */
void sim_history_lose(int64_t since);

/* Fails the run if a key's history has no explanation. */
void sim_history_check(int keys);

#endif
