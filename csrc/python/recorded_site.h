/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The line of the program for the recorder (pg/recorder.h), of every operation: so it may
 * cost a few nanoseconds, which is less than making a frame object takes.  A small cache
 * from the interpreter's own place (code and instruction) to the site's number does it;
 * only what is not in it is looked at as base/call_site's makers do. */
#ifndef DISTLITE_PYTHON_RECORDED_SITE_H
#define DISTLITE_PYTHON_RECORDED_SITE_H

#include "pg/recorder.h"
#include "python/state.h"

/* With the GIL; never fails.  A state that is cleared forgets its cache. */
void dlpy_recorded_site_find(dlpy_state *state);
int dlpy_recorded_sites_traverse(dlpy_state *state, visitproc visit, void *arg);
void dlpy_recorded_sites_clear(dlpy_state *state);

/* What begins every operation. */
static inline void
dlpy_recorded_site_enter(dlpy_state *state)
{
    if (dl_recorder_is_on()) {
        dlpy_recorded_site_find(state);
    }
}

#endif
