/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The backend that carries the windows of a group whose own backend leaves them to it
 * (dl_backend_ops.leaves_windows): a CPU backend of the same ranks, which exists from the
 * first window to the end of the group, and is aborted and left with it.
 *
 * MPI has windows of its own, but its locks and flushes block without a timeout or a
 * check for signals, for ever if the owner has died, and where its network has no
 * hardware for them they are carried out only while the owner calls MPI. */
#ifndef DISTLITE_PG_WINDOW_BACKEND_H
#define DISTLITE_PG_WINDOW_BACKEND_H

#include "base/deadline.h"
#include "base/status.h"
#include "pg/group.h"

/* Makes the backend, unless the group has it.  All ranks call this, and wait for each
 * other in the group's store.  A failure breaks the group, because other ranks may have
 * made theirs. */
dl_status dl_window_backend_open(dl_group *group, dl_deadline deadline);

#endif
