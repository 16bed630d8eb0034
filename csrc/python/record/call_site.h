/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds the line of the user's program that called into the package, for the
 * recorder (pg/record/recorder.h).  Frames of the package's own Python files are
 * skipped.
 *
 * The recorder wants the line of every operation.  That may take only a few
 * nanoseconds, less than creating a frame object, so a small cache maps the
 * interpreter's position (code and instruction) to the number of the call site.  Only
 * on a miss are the frames walked. */
#ifndef DISTLITE_PYTHON_RECORD_CALL_SITE_H
#define DISTLITE_PYTHON_RECORD_CALL_SITE_H

#include "pg/record/recorder.h"
#include "pg/record/waiting.h"
#include "python/module/state.h"

/* Sets dl_recorder_site to the calling line.  Needs the GIL; never fails.  The other
 * two serve the module's tp_traverse and tp_clear; clearing frees the cache. */
void dlpy_recorded_site_find(dlpy_state *state);
int dlpy_recorded_sites_traverse(dlpy_state *state, visitproc visit, void *arg);
void dlpy_recorded_sites_clear(dlpy_state *state);

/* Called at the beginning of every operation. */
static inline void
dlpy_recorded_site_enter(dlpy_state *state)
{
    if (dl_recorder_is_on()) {
        dlpy_recorded_site_find(state);
    }
}

/* Called with the GIL before a call that may wait and is no operation; it ends with
 * dl_waiting_end(). */
static inline void
dlpy_waiting_enter(dlpy_state *state, dl_waiting *waiting, dl_waiting_fn describe,
                   const void *subject, dl_deadline deadline)
{
    dlpy_recorded_site_enter(state);
    dl_waiting_begin(waiting, describe, subject, deadline);
}

#endif
