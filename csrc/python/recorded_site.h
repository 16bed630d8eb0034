/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds the calling line of every operation for the recorder (pg/record/recorder.h).
 * It may take only a few nanoseconds, less than creating a frame object, so a small
 * cache maps the interpreter's position (code and instruction) to the number of the
 * call site.  Only on a miss are the frames walked, as for base/call_site. */
#ifndef DISTLITE_PYTHON_RECORDED_SITE_H
#define DISTLITE_PYTHON_RECORDED_SITE_H

#include "pg/record/recorder.h"
#include "python/state.h"

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

#endif
