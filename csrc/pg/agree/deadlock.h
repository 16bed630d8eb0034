/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Detects ranks that wait for each other and would do so until their timeout.  Once a
 * thread of the program has waited for some seconds, the detector's thread publishes
 * what this process waits for (pg/agree/own_waits.h) in the job's store, reads the
 * same of the ranks that it waits for, and looks for a cycle
 * (pg/record/wait_graph.h).  A cycle is reported only once all of its processes have
 * published the same waits again after it was first found.  They then all waited at one
 * moment, and a deadlock never resolves itself.
 *
 * The cycle is logged on each of its ranks.  DISTLITE_DEADLOCK=off disables the
 * detector.  DISTLITE_DEADLOCK_SECONDS (default 5) is how long a wait lasts before the
 * first search.
 *
 * A rank is blocked only if its main thread is, and no other thread of it has waited in a
 * group.  Threads that have never done so may or may not call operations: the report
 * mentions them. */
#ifndef DISTLITE_PG_AGREE_DEADLOCK_H
#define DISTLITE_PG_AGREE_DEADLOCK_H

#include "base/status.h"
#include "pg/group.h"

/* Add a group to the detector once its ranks in the job are known, and remove it at the
 * end of its life.  Both may be called repeatedly. */
void dl_deadlock_enter(dl_group *group);
void dl_deadlock_leave(dl_group *group);

/* Reads the environment.  DL_INVALID if a variable has no valid value. */
dl_status dl_deadlock_configure(void);

/* Sets the group whose ranks and store are the job's.  No reference is taken;
 * NULL for none. */
void dl_deadlock_set_world(dl_group *group);

#endif
