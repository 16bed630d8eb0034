/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where packages bring libraries along: below the folders that modules come from. */
#ifndef DISTLITE_PYTHON_LIBRARY_ROOTS_H
#define DISTLITE_PYTHON_LIBRARY_ROOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Tells the core, before it looks for a library.  -1 with an exception. */
int dlpy_set_library_roots(void);

#endif
