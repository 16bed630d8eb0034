/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collective functions: distlite.all_reduce and the others are these builtins.  A
 * Python frame costs more than a small all_reduce, so a synchronous call allocates
 * nothing between the caller and the core. */
#ifndef DISTLITE_PYTHON_COLLECTIVE_FUNCTIONS_H
#define DISTLITE_PYTHON_COLLECTIVE_FUNCTIONS_H

#include "python/state.h"

int dlpy_add_collective_functions(PyObject *module);

#endif
