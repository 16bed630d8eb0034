/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the stages with ranks share: their faults, whom an error names, and what a rank
 * leaves behind. */
#ifndef DISTLITE_SIMULATE_RANKS_H
#define DISTLITE_SIMULATE_RANKS_H

#include "world.h"

typedef enum sim_rank_fault_kind {
    SIM_RANK_CUT,
    SIM_RANK_PARTITION,
    SIM_RANK_STOP,
    SIM_RANK_KILL,
    SIM_RANK_RESTART, /* killed, and started again */
    SIM_RANK_CRASH,   /* the rank's host: nobody is told */
    SIM_RANK_LATE,
    SIM_RANK_ABSENT,
    SIM_RANK_TWICE,
    SIM_RANK_NO_MEMORY,
    SIM_RANK_NO_DESCRIPTORS,
    SIM_RANK_JOIN_KINDS,
    /* The rest is for ranks that have joined. */
    SIM_RANK_DIFFERS = SIM_RANK_JOIN_KINDS,
    SIM_RANK_ABORTS,
    SIM_RANK_KINDS,
} sim_rank_fault_kind;

typedef struct sim_rank_fault {
    sim_rank_fault_kind kind;
    int64_t at, span;
    int rank, other; /* of a partition, one more than the other rank; 0: the store */
    uint64_t number;
} sim_rank_fault;

static inline bool
sim_rank_fault_is_of_wire(const sim_rank_fault *fault)
{
    return fault->kind == SIM_RANK_CUT || fault->kind == SIM_RANK_PARTITION;
}

/* Begins or ends a fault of a process; those of the wire and those in which a rank comes
 * at another time are the stage's. */
void sim_rank_fault_begin(const sim_rank_fault *fault, sim_process *process);
void sim_rank_fault_end(sim_process *process);

/* Chooses each rank's host, from 1 on: 1 to 4 ranks on each, neighbours or not. */
void sim_ranks_place(int size, int *hosts);

const char *sim_rank_fault_name(sim_rank_fault_kind kind);
void sim_rank_faults_print(const sim_rank_fault *faults, int count, const int *hosts,
                           int64_t from);

/* Parts the rank's host from the other rank's, or the store's, unless it is the same. */
void sim_rank_fault_part(const sim_rank_fault *fault, const int *hosts);
/* Marks the ranks that an error may name: the fault's, or all of its host. */
void sim_rank_fault_blame(const sim_rank_fault *fault, int size, const int *hosts,
                          bool *is_faulty);

/* Returns whether the text names one of the ranks of which `is_at_fault` is true, as
 * "rank 1" or in "ranks 1, 2". */
bool sim_text_names(const char *text, int size, bool (*is_at_fault)(int rank));

/* Returns whether the thread's last error names a rank "or other ranks of the same host",
 * and one of these is at fault. */
bool sim_text_blames_host(int rank, int size, const int *hosts, const bool *is_faulty);

/* Fails if a process holds more than its thread, the life port, and `kept` blocks of memory:
 * the table of processes, and that of the regions which it shares, if it had any. */
void sim_check_nothing_left(sim_process *process, int kept);

#endif
