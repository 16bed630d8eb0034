/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Moves a rank away from a core that it shares with another rank while other cores are
 * free.  Each arrival of two such ranks costs a context switch, ten times as much as
 * the arrival itself, and the scheduler may see no reason to separate them, because
 * both are always about to sleep.  A waiting rank publishes its core; a rank that
 * repeatedly finds the ranks that it waits for waiting on its own core moves to another
 * one. */
#ifndef DISTLITE_PG_CPU_SHM_CORE_SHARING_H
#define DISTLITE_PG_CPU_SHM_CORE_SHARING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In shared memory: the core on which a rank waits plus one, or 0 while it does not
 * wait. */
typedef _Atomic uint32_t dl_core_mark;

/* The state of one rank.  Zeroed memory is valid. */
typedef struct dl_core_sharing {
    int streak;
    int64_t next; /* earliest time of the next move */
} dl_core_sharing;

/* Called before and after the wait for a rank whose core mark is `other`.  `may_move` is
 * true on exactly one of each two ranks. */
void dl_core_sharing_begin(dl_core_sharing *sharing, dl_core_mark *own,
                           const dl_core_mark *other, bool may_move);
void dl_core_sharing_end(dl_core_mark *own);

#endif
