/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Libraries that are looked for at run time, below the folders of sys.path among other
 * places.  The module functions report which ones there are, and provide what creating
 * the default group needs of MPI: the rank and size of this process, and the address at
 * which rank 0 serves the store. */
#ifndef DISTLITE_PYTHON_GROUPS_LIBRARY_FUNCTIONS_H
#define DISTLITE_PYTHON_GROUPS_LIBRARY_FUNCTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Passes the current sys.path to the core; called before the core searches for a
 * library.  Returns 0, or -1 with an exception set. */
int dlpy_set_library_roots(void);

#endif
