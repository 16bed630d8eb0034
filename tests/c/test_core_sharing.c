/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/core_sharing.h"

#include <sched.h>

#include "check.h"

/* More than it takes, on any count. */
#define MEETINGS 64

/* The system may move the thread at any time; not every time. */
#define TRIES 50

static cpu_set_t
allowed_cores(void)
{
    cpu_set_t cores;

    CHECK_EQUAL(sched_getaffinity(0, sizeof cores, &cores), 0);
    return cores;
}

/* Waits again and again for one that waits on `core`; whether that has moved this
 * thread away from there. */
static bool
has_moved(dl_core_sharing *parting, int core, bool may_move)
{
    dl_core_mark own = 0;
    dl_core_mark other = (uint32_t)core + 1;

    for (int i = 0; i < MEETINGS; i++) {
        int before = sched_getcpu();
        dl_core_sharing_begin(parting, &own, &other, may_move);
        CHECK(atomic_load(&own) != 0);
        bool is_elsewhere = sched_getcpu() != core;
        dl_core_sharing_end(&own);
        CHECK_EQUAL(atomic_load(&own), 0);
        if (before == core && is_elsewhere) {
            return true;
        }
    }
    return false;
}

CHECK_CASE(a_rank_moves_away_from_the_one_it_waits_for)
{
    cpu_set_t cores = allowed_cores();
    bool has = CPU_COUNT(&cores) < 2; /* then there is nowhere to go */

    for (int i = 0; i < TRIES && !has; i++) {
        dl_core_sharing parting = {0};
        has = has_moved(&parting, sched_getcpu(), true);
    }
    CHECK(has);
    cpu_set_t after = allowed_cores();
    CHECK(CPU_EQUAL(&cores, &after));
}

CHECK_CASE(it_stays_where_it_may_not_move_or_cannot)
{
    cpu_set_t cores = allowed_cores();
    dl_core_sharing parting = {0};
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    CHECK_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
    int core = sched_getcpu();
    CHECK(!has_moved(&parting, core, true));
    CHECK(!has_moved(&parting, core, false));
    cpu_set_t after = allowed_cores();
    CHECK(CPU_EQUAL(&one, &after));
    CHECK_EQUAL(sched_setaffinity(0, sizeof cores, &cores), 0);
}

CHECK_CASE(one_meeting_elsewhere_begins_the_count_anew)
{
    dl_core_sharing parting = {0};
    dl_core_mark own = 0;
    dl_core_mark nowhere = 0;

    for (int i = 0; i < MEETINGS; i++) {
        dl_core_mark other = (uint32_t)sched_getcpu() + 1;
        dl_core_sharing_begin(&parting, &own, i % 8 == 7 ? &nowhere : &other, true);
        CHECK(parting.streak <= 8);
        dl_core_sharing_end(&own);
    }
    CHECK_EQUAL(parting.next, 0); /* it has not moved */
}
