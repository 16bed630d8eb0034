/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of a CPU backend, for cpu_backend.c, which makes and frees it, and
 * cpu_collectives.c, which runs its operations. */
#ifndef DISTLITE_PG_CPU_CPU_STATE_H
#define DISTLITE_PG_CPU_CPU_STATE_H

#include "base/buffer.h"
#include "pg/cpu/algorithms/exchange.h"
#include "pg/cpu/hosts/hosts.h"
#include "pg/cpu/p2p/p2p.h"
#include "pg/cpu/bootstrap.h"
#include "pg/cpu/cpu_members.h"
#include "pg/cpu/shm/arena.h"
#include "pg/cpu/shm/shared.h"
#include "pg/cpu/window/window_server.h"

typedef struct dl_cpu_backend {
    dl_backend base;
    /* fixed after init */
    char *group_name;
    uint32_t fork_generation;
    int rank;
    int size;
    dl_bootstrap *bootstrap;
    dl_loan loan; /* of a group made out of another; else empty */
    dl_cpu_members members;
    dl_peer *local_peers;         /* by local rank; for the board */
    dl_process **local_processes; /* by local rank; the bootstrap's */
    dl_p2p *p2p;                  /* NULL for one rank */
    dl_window_server *windows;
    dl_notices notices;     /* only with several hosts */
    dl_end_subscriber ends; /* wakes this group's waits when a process has ended */
    /* used by the thread that is in an operation; the abort and leave functions lock */
    dl_board board;     /* of this host's ranks */
    dl_traffic traffic; /* only with several hosts */
    dl_hosts hosts;     /* only with several hosts */
    dl_exchange exchange;
    dl_shared_views views;
    dl_buffer staging; /* contiguous copy of a strided array */
} dl_cpu_backend;

static inline bool
dl_cpu_has_hosts(const dl_cpu_backend *self)
{
    return self->members.layout.host_count > 1;
}

static inline dl_cpu_backend *
dl_cpu_self(dl_backend *backend)
{
    return (dl_cpu_backend *)(void *)backend;
}

/* Gives up the group: this rank's waits and messages end with `cause`, and the other
 * ranks are informed, whatever they wait for.  May be called from any thread. */
void dl_cpu_give_up(dl_cpu_backend *self, const dl_error *cause);

/* Logs one line at INFO about a group that was joined, which shows where its ranks are
 * and how they reach each other.  A group of one rank has no members. */
void dl_cpu_log_join(const dl_backend_options *options, const dl_cpu_members *members);

dl_collective_fn dl_cpu_all_reduce, dl_cpu_broadcast, dl_cpu_barrier, dl_cpu_reduce;
dl_collective_fn dl_cpu_scan, dl_cpu_all_gather, dl_cpu_gather, dl_cpu_scatter;
dl_collective_fn dl_cpu_reduce_scatter, dl_cpu_all_to_all;

#endif
