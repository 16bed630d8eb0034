/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds the line of the user's program that called into the package, for base/call_site.
 * Frames of the package's own Python files are passed over. */
#ifndef DISTLITE_PYTHON_CALL_SITE_H
#define DISTLITE_PYTHON_CALL_SITE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/call_site.h"

/* Remembers which folder is the package's; 0, or -1 with an exception set. */
int dlpy_call_site_init(PyObject *module);

/* With the GIL.  Notes the line for this thread, or none where no Python runs; never
 * fails.  What is noted is good until the calling frame moves on. */
void dlpy_call_site_note(void);

/* What begins every operation: nothing at all unless somebody wants it. */
static inline void
dlpy_call_site_enter(void)
{
    if (dl_call_sites_are_wanted()) {
        dlpy_call_site_note();
    }
}

#endif
