/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/core_sharing.h"

#include <sched.h>

#include "base/deadline.h"

/* Consecutive arrivals on one core before the rank moves: too many to be chance. */
#define STREAK 16

/* Shortest time between two moves.  A move costs some ten microseconds, and the system
 * may undo it at once. */
#define REST (5 * DL_MILLISECOND)

/* Moves the calling thread by forbidding it its core for a moment. */
static void
leave_core(int core)
{
    cpu_set_t allowed;
    cpu_set_t others;

    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0) {
        return;
    }
    others = allowed;
    CPU_CLR((size_t)core, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0) {
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
    }
}

void
dl_core_sharing_begin(dl_core_sharing *sharing, dl_core_mark *own,
                      const dl_core_mark *other, bool may_move)
{
    int core = sched_getcpu();

    if (core < 0 || core >= CPU_SETSIZE) {
        return;
    }
    atomic_store_explicit(own, (uint32_t)core + 1, memory_order_relaxed);
    if (atomic_load_explicit(other, memory_order_relaxed) != (uint32_t)core + 1) {
        sharing->streak = 0;
        return;
    }
    if (++sharing->streak < STREAK || !may_move) {
        return;
    }
    int64_t now = dl_now();
    if (now >= sharing->next) {
        leave_core(core);
        sharing->next = now + REST;
    }
    sharing->streak = 0;
}

void
dl_core_sharing_end(dl_core_mark *own)
{
    atomic_store_explicit(own, 0, memory_order_relaxed);
}
