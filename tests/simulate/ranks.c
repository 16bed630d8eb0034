/* SPDX-License-Identifier: BSD-3-Clause */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "local.h"

/* What a thread that nobody joins takes to end after it was told to. */
#define LINGER (DL_SECOND / 10)

static const char *const names[SIM_RANK_KINDS] = {
    [SIM_RANK_CUT] = "cut a connection",
    [SIM_RANK_PARTITION] = "part hosts",
    [SIM_RANK_STOP] = "stop rank",
    [SIM_RANK_KILL] = "kill rank",
    [SIM_RANK_RESTART] = "kill and restart rank",
    [SIM_RANK_CRASH] = "crash the host of rank",
    [SIM_RANK_LATE] = "late rank",
    [SIM_RANK_ABSENT] = "absent rank",
    [SIM_RANK_TWICE] = "start twice rank",
    [SIM_RANK_NO_MEMORY] = "no memory in rank",
    [SIM_RANK_NO_DESCRIPTORS] = "no descriptors in rank",
    [SIM_RANK_DIFFERS] = "another call in rank",
    [SIM_RANK_ABORTS] = "abort in rank",
};

const char *
sim_rank_fault_name(sim_rank_fault_kind kind)
{
    return names[kind];
}

void
sim_ranks_place(int size, int *hosts)
{
    sim_random random = sim_random_of(sim.seed, 7);
    int most = sim.is_apart ? 1 : 1 + (int)sim_random_below(&random, 4);
    int count = (size + most - 1) / most;
    bool are_neighbours = sim_random_once_in(&random, 2);

    for (int rank = 0; rank < size; rank++) {
        hosts[rank] = 1 + (are_neighbours ? rank / most : rank % count);
    }
}

void
sim_rank_fault_begin(const sim_rank_fault *fault, sim_process *process)
{
    switch (fault->kind) {
    case SIM_RANK_STOP:
        process->stopped_until = sim.now + fault->span;
        break;
    case SIM_RANK_KILL:
    case SIM_RANK_RESTART:
        process->kill_at_call = process->calls + fault->number;
        break;
    case SIM_RANK_CRASH:
        sim.host_up_at[process->host] = sim.now + fault->span;
        sim_net_crash(process->host);
        sim_host_kill(process->host);
        break;
    case SIM_RANK_NO_MEMORY:
        sim_fail_from(process->fail_allocation_at, process->allocations,
                      fault->number % 200);
        break;
    case SIM_RANK_NO_DESCRIPTORS:
        sim_fail_from(process->fail_descriptor_at, process->descriptors,
                      fault->number % 20);
        break;
    default:
        break;
    }
}

void
sim_rank_fault_end(sim_process *process)
{
    process->fail_allocation_at[0] = 0;
    process->fail_descriptor_at[0] = 0;
    if (process->kill_at_call != 0) {
        sim_process_kill(process);
    }
}

void
sim_rank_faults_print(const sim_rank_fault *faults, int count, const int *hosts,
                      int64_t from)
{
    for (int i = 0; i < count; i++) {
        const sim_rank_fault *one = &faults[i];
        printf("  at %9.6f for %8.6f: %s %d on host %d (other %d, number %d)\n",
               (double)(one->at - from) / 1e9, (double)one->span / 1e9,
               names[one->kind], one->rank, hosts[one->rank], one->other,
               (int)one->number);
    }
}

void
sim_rank_fault_part(const sim_rank_fault *fault, const int *hosts)
{
    int host = hosts[fault->rank];
    int other = fault->other == 0 ? 0 : hosts[fault->other - 1];

    if (host != other) {
        sim_net_partition(host, other, sim.now + fault->span);
    }
}

void
sim_rank_fault_blame(const sim_rank_fault *fault, int size, const int *hosts,
                     bool *is_faulty)
{
    for (int rank = 0; rank < size; rank++) {
        bool is_hit = fault->kind == SIM_RANK_CRASH ? hosts[rank] == hosts[fault->rank]
                                                    : rank == fault->rank;
        is_faulty[rank] |= is_hit && !sim_rank_fault_is_of_wire(fault);
    }
}

bool
sim_text_names(const char *text, int size, bool (*is_at_fault)(int rank))
{
    /* Also "Rank 1". */
    for (const char *at = text; (at = strstr(at, "ank")) != NULL; at++) {
        const char *number = at + strcspn(at, "0123456789");
        if (number - at > 6) {
            continue;
        }
        /* "ranks 1, 2" */
        while (*number >= '0' && *number <= '9') {
            char *end;
            long rank = strtol(number, &end, 10);
            if (rank < size && is_at_fault((int)rank)) {
                return true;
            }
            number = end + strspn(end, ", ");
        }
    }
    return false;
}

bool
sim_text_blames_host(int rank, int size, const int *hosts, const bool *is_faulty)
{
    bool is_any = false;

    for (int other = 0; other < size; other++) {
        is_any |= hosts[other] == hosts[rank] && is_faulty[other];
    }
    return is_any && strstr(dl_last_error()->text, "other ranks of the same host");
}

static bool
has_one_thread(void *process)
{
    return ((const sim_process *)process)->live_tasks == 1;
}

void
sim_check_nothing_left(sim_process *process, int kept)
{
    if (!has_one_thread(process)) {
        sim_wait("the end of its threads", has_one_thread, process, sim.now + LINGER);
    }
    int descriptors = sim_net_open_count(process) + sim_disk_open_count(process);

    int mappings = sim_mapping_count(process);

    if (process->live_allocations > kept || descriptors > 1 || mappings > 0
        || process->live_tasks != 1) {
        sim_fail("%s has %ld blocks of memory, %d descriptors, %d mappings and %d "
                 "threads left",
                 process->name, process->live_allocations, descriptors, mappings,
                 process->live_tasks - 1);
    }
}
