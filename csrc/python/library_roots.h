/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tells the core where Python packages install shared libraries: below the folders of
 * sys.path. */
#ifndef DISTLITE_PYTHON_LIBRARY_ROOTS_H
#define DISTLITE_PYTHON_LIBRARY_ROOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Passes the current sys.path to the core; called before the core searches for a
 * library.  Returns 0, or -1 with an exception set. */
int dlpy_set_library_roots(void);

#endif
