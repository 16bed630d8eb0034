/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ranks that once met through a store, and what this process has to reach them:
 * shared by the group that met and all groups made out of it, and kept until the last of
 * them ends.  Those need not meet again: who they are is known, their memory comes out of
 * the arena, and other hosts' ranks are called when they are needed.
 *
 * The ranks of each host join over its memory; then the hosts' leaders say hello to each
 * other, so that a network that does not work is found out here. */
#ifndef DISTLITE_PG_CPU_ROSTER_H
#define DISTLITE_PG_CPU_ROSTER_H

#include "pg/backend.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/shm/join.h"
#include "pg/cpu/health/probes.h"
#include "pg/cpu/health/process_table.h"

typedef struct dl_roster {
    dl_backend_origin base;
    /* fixed after init */
    uint32_t fork_generation;
    dl_endpoint endpoint;
    dl_probes probes;             /* of other hosts' ranks */
    dl_call_source calls;         /* the endpoint's listener, of several hosts */
    dl_membership membership;     /* of this host: ranks are places there */
    dl_process **local_processes; /* by place; the endpoint's */
} dl_roster;

/* Meets the others. */
dl_status dl_roster_new(const dl_backend_options *options, dl_deadline deadline,
                        dl_roster **roster);

#endif
