/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DISTLITE_SIMULATE_IMAGE_H
#define DISTLITE_SIMULATE_IMAGE_H

#include "world.h"

/* edge.c: the last variables of the simulator. */
extern char sim_data_edge[64];
extern char sim_bss_edge[64];

/* Gives a new process the variables as they were before the first one began. */
void sim_image_start(sim_process *process);

/* Makes the process's variables those that the code sees. */
void sim_image_load(sim_process *process);

/* Returns where a variable of the process is now: in place, or where it was saved. */
void *sim_image_find(const sim_process *process, void *at);

#endif
