/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds the line of the user's program that called into the package and notes it for
 * base/call_site.  Frames of the package's own Python files are skipped. */
#ifndef DISTLITE_PYTHON_CALL_SITE_H
#define DISTLITE_PYTHON_CALL_SITE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/call_site.h"

/* Stores the package's folder and adds the module function _set_call_label().  Returns
 * 0, or -1 with an exception set. */
int dlpy_call_site_init(PyObject *module);

/* Notes the calling line for this thread, or none if no Python code is running.  Needs
 * the GIL; never fails.  The note is valid until the calling frame continues. */
void dlpy_call_site_note(void);

/* Called at the beginning of every operation; does nothing unless call sites are
 * wanted. */
static inline void
dlpy_call_site_enter(void)
{
    if (dl_call_sites_are_enabled()) {
        dlpy_call_site_note();
    }
}

#endif
