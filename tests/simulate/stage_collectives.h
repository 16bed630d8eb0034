/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stage "collectives": 2 to 7 ranks, one on each host, run one program of operations, in
 * which some run ahead of others, while connections fail and ranks stop, end, come late,
 * give up or call something else. */
#ifndef DISTLITE_SIMULATE_STAGE_COLLECTIVES_H
#define DISTLITE_SIMULATE_STAGE_COLLECTIVES_H

#include "world.h"

/* Runs the stage and returns when it has passed. */
void sim_stage_collectives(uint64_t kept);

#endif
