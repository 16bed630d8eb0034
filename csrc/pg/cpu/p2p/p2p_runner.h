/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The thread that drives an engine while operations are pending that nobody waits for, or
 * frames of ended ones have not gone.  It starts with the first of them, keeps out of the
 * way of those who wait, and sleeps when there is nothing to do. */
#ifndef DISTLITE_PG_CPU_P2P_P2P_RUNNER_H
#define DISTLITE_PG_CPU_P2P_P2P_RUNNER_H

#include "pg/cpu/p2p/p2p_state.h"

/* With the engine's lock: an operation comes that nobody waits for yet. */
dl_status dl_p2p_runner_want(dl_p2p *engine);

/* With the engine's lock: whoever drove it has gone; is there work left?  Without a thread
 * for it the peers would wait for ever: the engine is aborted. */
void dl_p2p_runner_take_over(dl_p2p *engine);

/* With the engine's lock: something is to be looked at. */
void dl_p2p_runner_nudge(dl_p2p *engine);

/* Without the lock: ends it, if there is one. */
void dl_p2p_runner_stop(dl_p2p *engine);

#endif
