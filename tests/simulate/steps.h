/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The steps of a program that all ranks of the stage "collectives" run: an operation of a
 * group each, whose arrays follow from the step and the rank, and so do its results. */
#ifndef DISTLITE_SIMULATE_STEPS_H
#define DISTLITE_SIMULATE_STEPS_H

#include "pg/window.h"
#include "world.h"

#define SIM_RANKS 7

typedef enum sim_step_kind {
    SIM_STEP_BARRIER,
    SIM_STEP_ALL_REDUCE,
    SIM_STEP_REDUCE,
    SIM_STEP_BROADCAST,
    SIM_STEP_SCAN,
    SIM_STEP_EXSCAN,
    SIM_STEP_ALL_GATHER,
    SIM_STEP_GATHER,
    SIM_STEP_SCATTER,
    SIM_STEP_REDUCE_SCATTER,
    SIM_STEP_ALL_TO_ALL,
    SIM_STEP_SEND, /* from the root to the peer; the sender does not wait */
    SIM_STEP_RING, /* each rank sends to the next one and receives from the last */
    SIM_STEP_MONITORED_BARRIER,
    SIM_STEP_SPLIT, /* some ranks make a group of their own, and reduce in it */
    SIM_STEP_WINDOW, /* all write to each other's memory, and count in that of the root */
    SIM_STEP_KINDS,
} sim_step_kind;

typedef struct sim_step {
    sim_step_kind kind;
    int number;
    dl_reduce_op reduction;
    size_t count;
    int root, peer;
    bool is_queued; /* it is waited for at the end of the program */
    bool is_uneven;
    bool
        has_objects; /* arrays are said to be those of the library's blocks of objects */
    bool is_float;   /* sums depend on their order, which has to be that of all ranks */
    unsigned members;          /* of a split, a bit each */
    int64_t pauses[SIM_RANKS]; /* of each rank before the step */
} sim_step;

/* What one rank does in a step; it stays in place until the end of the run. */
typedef struct sim_act {
    const sim_step *step;
    int rank, size;
    int call_count; /* two of a ring, else at most one */
    dl_call calls[2];
    dl_tensor inputs[SIM_RANKS], outputs[SIM_RANKS];
    dl_work *work; /* if it has begun and is not waited for yet */
    dl_deadline deadline;
} sim_act;

void sim_step_draw(sim_step *step, sim_random *random, sim_random *more, int number,
                   int size);
const char *sim_step_name(const sim_step *step);

/* Returns an element that a rank has for another one. */
int64_t sim_step_value(const sim_step *step, int from, int to, size_t i);

/* Returns whether no rank can end the step before all have begun it. */
bool sim_step_joins_all(const sim_step *step);

sim_act *sim_act_new(const sim_step *step, int rank, int size);

/* Fails if the results of an act that has ended well are not those of its step. */
void sim_act_check(const sim_act *act);

/* The hash of a result that all ranks have alike; 0 if the step has none. */
uint64_t sim_act_hash(const sim_act *act);

/* window_step.c: runs a step with a window, which the caller frees, also after a failure,
 * and checks what is in it.  `deadline` becomes that of the last call. */
dl_status sim_window_run(dl_group *group, const sim_step *step, dl_deadline *deadline,
                         dl_window **window);

#endif
