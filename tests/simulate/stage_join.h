/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stage "join": ranks of several hosts, one on each, make a group through a store.  Some
 * do not come, or come late or twice, or end meanwhile.  Once all that is over, processes
 * that begin anew have to make a group, and then one of some of its members. */
#ifndef DISTLITE_SIMULATE_STAGE_JOIN_H
#define DISTLITE_SIMULATE_STAGE_JOIN_H

#include "store/store.h"
#include "world.h"

#define SIM_JOIN_ADDRESS "10.0.0.1"
#define SIM_JOIN_PORT 2950

/* join_store.c: the store, and its server; stopping that returns when it has ended. */
void sim_join_server_start(void);
void sim_join_server_stop(void);

dl_status sim_join_store_open(const char *prefix, int64_t limit, dl_store **store);

/* Runs the stage and returns when it has passed. */
void sim_stage_join(uint64_t kept);

#endif
