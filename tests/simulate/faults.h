/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The faults of a run: a list that follows from the seed, of which some can be left
 * out. */
#ifndef DISTLITE_SIMULATE_FAULTS_H
#define DISTLITE_SIMULATE_FAULTS_H

#include "world.h"

#define SIM_FAULTS 8

typedef enum sim_fault_kind {
    SIM_CUT,         /* a connection is reset */
    SIM_PARTITION,   /* a client's host and the server's do not reach each other */
    SIM_STOP_SERVER, /* the process does not run for a while */
    SIM_STOP_CLIENT,
    SIM_KILL_CLIENT,
    SIM_NO_MEMORY_SERVER,
    SIM_NO_MEMORY_CLIENT,
    SIM_NO_DESCRIPTORS,
    SIM_JUMP, /* of the wall clock */
    /* The rest is for servers with a journal. */
    SIM_KILL_SERVER,
    SIM_CRASH_HOST,
    SIM_FULL_DISK,
    SIM_SLOW_DISK,
    SIM_FAULT_KINDS,
    SIM_NEEDS_JOURNAL = SIM_KILL_SERVER,
} sim_fault_kind;

typedef struct sim_fault {
    sim_fault_kind kind;
    int64_t at;
    int64_t span;
    int client;
    uint64_t number; /* of calls or allocations from then on */
} sim_fault;

typedef struct sim_plan {
    sim_fault faults[SIM_FAULTS];
    int count;
    int64_t calm_at; /* when the last one has ended */
} sim_plan;

/* Draws the faults of the seed and leaves out those whose bit in `kept` is not set. */
void sim_plan_draw(sim_plan *plan, sim_random *random, uint64_t kept, int clients,
                   bool has_journal, int64_t from, int64_t span);
bool sim_plan_has(const sim_plan *plan, sim_fault_kind kind);
/* Returns how long faults of the kind last, all together. */
int64_t sim_plan_span(const sim_plan *plan, sim_fault_kind kind);
void sim_plan_print(const sim_plan *plan);

#endif
