/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Waiting for messages: whoever waits drives the engine, awake for a while, then asleep at
 * the bell and at links.  All without the engine's lock but where it says so. */
#ifndef DISTLITE_PG_CPU_P2P_P2P_WAIT_H
#define DISTLITE_PG_CPU_P2P_P2P_WAIT_H

#include "pg/cpu/p2p/p2p_state.h"

/* Unlocks, and then tells those who wait for what has ended. */
void dl_p2p_unlock_and_finish(dl_p2p *engine);

dl_status dl_p2p_wait(dl_work *work, dl_deadline deadline);
void dl_p2p_withdraw(dl_work *work);

/* With the lock, which is dropped now and then: until nothing is owed any more, or peers
 * take nothing for a second. */
void dl_p2p_settle(dl_p2p *engine);

/* Sleeps until rung, for a slice at most; `seen` was read before the last look. */
void dl_p2p_sleep(dl_p2p *engine, uint32_t seen, int64_t limit);

#endif
