/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The bootstrap of a group is the set of ranks that met through the store, with what
 * this process needs to reach them.  The group that met and all groups made out of it
 * share it, and it exists until the last of them ends.  Those groups need no
 * rendezvous: their members are known, their memory comes out of the arena, and ranks
 * of other hosts are called when they are needed.
 *
 * In a rendezvous, the ranks of each host join over its memory.  Then the hosts'
 * leaders greet those with which they will exchange small arrays, log2(hosts) each way,
 * so that a network that does not work is detected here. */
#ifndef DISTLITE_PG_CPU_BOOTSTRAP_H
#define DISTLITE_PG_CPU_BOOTSTRAP_H

#include "pg/backend.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/shm/join.h"
#include "pg/cpu/health/probes.h"
#include "pg/cpu/health/process_table.h"

typedef struct dl_bootstrap {
    dl_backend_origin base;
    /* fixed after init */
    uint32_t fork_generation;
    dl_endpoint endpoint;
    dl_probes probes;             /* of ranks of other hosts */
    dl_call_source calls;         /* the endpoint's listener; only with several hosts */
    dl_listener_bell notices;     /* has notices read while the program computes */
    dl_membership membership;     /* of this host; its ranks are local */
    dl_process **local_processes; /* by local rank; references are the endpoint's */
} dl_bootstrap;

/* Meets the other ranks.  `*bootstrap` has one reference; dl_backend_origin_unref()
 * gives it back.  After a failure there is nothing to free, and the other ranks were
 * informed if this rank or its host has caused it. */
dl_status dl_bootstrap_new(const dl_backend_options *options, dl_deadline deadline,
                           dl_bootstrap **bootstrap);

#endif
