/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine's own thread.  It drives the engine while operations are pending that no
 * thread waits for, or frames of completed operations have not been sent.  It is
 * started by the first of them, does nothing while other threads drive the engine, and
 * sleeps when there is no work. */
#ifndef DISTLITE_PG_CPU_P2P_P2P_RUNNER_H
#define DISTLITE_PG_CPU_P2P_P2P_RUNNER_H

#include "pg/cpu/p2p/p2p_state.h"

/* Called with the engine's lock held, when an operation is posted that no thread waits
 * for.  Starts the thread or wakes it. */
dl_status dl_p2p_runner_want(dl_p2p *engine);

/* Called with the engine's lock held, by a thread that stops driving the engine: hands
 * unsent frames over to the runner.  If the runner cannot be started, the engine is
 * aborted, because its peers would otherwise wait forever. */
void dl_p2p_runner_take_over(dl_p2p *engine);

/* Wakes the thread if it sleeps.  The engine's lock must be held. */
void dl_p2p_runner_nudge(dl_p2p *engine);

/* Stops and joins the thread, if there is one.  The engine's lock must not be held. */
void dl_p2p_runner_stop(dl_p2p *engine);

#endif
