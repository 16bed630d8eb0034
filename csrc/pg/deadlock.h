/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds ranks that wait for each other and would do so until their timeout.  Once a thread
 * of the program has waited for some seconds, a thread of this file describes what this
 * process waits for (pg/own_waits.h) to the job's store, reads the same of the ranks that
 * are waited for (pg/wait_exchange.h), and looks for a cycle (pg/wait_graph.h).  A cycle is told only if all its processes
 * have described the same waits once more after it was found first: so they all waited at
 * one moment, and what is a deadlock at one moment stays one.
 *
 * DISTLITE_DEADLOCK=warn logs the picture on each rank in it; raise also ends the
 * operations; off does nothing.  The default is warn, and raise at debug level DETAIL.
 * DISTLITE_DEADLOCK_SECONDS (default 5) is the wait before the first look.
 *
 * A rank whose other threads have used groups is blocked only if they are, too.  Threads
 * that never waited in a group are not known to be able to call: they are told in the
 * picture, and nothing is raised then. */
#ifndef DISTLITE_PG_DEADLOCK_H
#define DISTLITE_PG_DEADLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "pg/group.h"
#include "pg/recording.h"

/* From dl_group_new() to the end of the group's life. */
void dl_deadlock_enter(dl_group *group);
void dl_deadlock_leave(dl_group *group);

/* Reads the settings.  DL_INVALID: one makes no sense. */
dl_status dl_deadlock_configure(void);

/* The group whose ranks and store are the job's; not counted, NULL for none. */
void dl_deadlock_set_world(dl_group *group);

/* An operation has timed out: adds the picture, if one was found for it, to the thread's
 * last error, whose code is returned. */
dl_status dl_deadlock_explain(const dl_record *record);

#endif
