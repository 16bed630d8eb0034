/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stage "store": clients of one TCP store's server, which may have a journal and be
 * started again, and what they are told.  stage_store.c has the hosts and the faults,
 * store_clients.c what clients do. */
#ifndef DISTLITE_SIMULATE_STAGE_STORE_H
#define DISTLITE_SIMULATE_STAGE_STORE_H

#include "faults.h"

#define SIM_CLIENTS 4
#define SIM_PORT 2950
#define SIM_SERVER_ADDRESS "10.0.0.1"
#define SIM_JOURNAL "/journal"

/* The keys, by what they hold. */
enum {
    SIM_KEY_REGISTER,
    SIM_KEY_OTHER,
    SIM_KEY_COUNTER,
    SIM_KEY_QUEUE,
    SIM_KEY_TEXT,
    SIM_KEY_COUNT,
};

typedef struct sim_client {
    int number;
    char name[32];
    sim_process *process;
    uint64_t stream; /* of its threads' choices */
    bool has_ended;
} sim_client;

typedef struct sim_store_run {
    sim_plan plan;
    int clients;
    int threads;     /* of each client */
    int operations;  /* of each thread */
    bool are_killed; /* some client may never arrive at the last barrier */
    /* A crash of the host may lose what the server remembers of its clients: those that
     * repeat a change on a connection from before are told that its outcome is unknown. */
    bool may_forget;
    sim_client client[SIM_CLIENTS];
} sim_store_run;

extern sim_store_run sim_store;

/* Returns whether all faults are over, and the server serves again. */
bool sim_store_is_calm(int64_t at);

/* The main function of a client's process; its argument is a sim_client. */
void *sim_client_main(void *argument);

/* Checks what was noted about barriers. */
void sim_client_check(void);

/* store_damage.c: damages the journal of servers that have ended, and starts others. */
void sim_store_damage(void);

/* Runs the stage and returns when it has passed. */
void sim_stage_store(uint64_t kept);

#endif
