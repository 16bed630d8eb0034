/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Waiting for messages.  A waiting thread drives the engine: first awake, for a bounded
 * time, then asleep at the doorbell and in poll(2) on the links.  The functions are
 * called without the engine's lock unless stated otherwise. */
#ifndef DISTLITE_PG_CPU_P2P_P2P_WAIT_H
#define DISTLITE_PG_CPU_P2P_P2P_WAIT_H

#include "pg/cpu/p2p/p2p_state.h"

/* Releases the engine's lock, which the caller holds, and then finishes the works that
 * have ended. */
void dl_p2p_unlock_and_finish(dl_p2p *engine);

dl_status dl_p2p_wait(dl_work *work, dl_deadline deadline);
void dl_p2p_withdraw(dl_work *work);

/* Drives the engine until no frames are unsent, or until the peers have accepted
 * nothing for a second.  Called with the lock held, which is released while it
 * sleeps. */
void dl_p2p_settle(dl_p2p *engine);

/* Sleeps until the doorbell rings, at most for `limit` nanoseconds or one slice.
 * `seen` is the value of the bell's counter before the last look at the engine, so that
 * no ring is missed. */
void dl_p2p_sleep(dl_p2p *engine, uint32_t seen, int64_t limit);

#endif
