/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module functions for debugging: the debug level, which is read from the
 * environment when the module is imported, the deadlock detector's settings, and
 * monitored_barrier. */
#ifndef DISTLITE_PYTHON_DEBUG_FUNCTIONS_H
#define DISTLITE_PYTHON_DEBUG_FUNCTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int dlpy_add_debug_functions(PyObject *module);

#endif
