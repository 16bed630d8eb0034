/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives themselves: distlite.all_reduce and its like are these builtins.  A
 * frame of Python code costs more than a small all_reduce, so from the call to the core
 * and back nothing here allocates. */
#ifndef DISTLITE_PYTHON_COLLECTIVE_FUNCTIONS_H
#define DISTLITE_PYTHON_COLLECTIVE_FUNCTIONS_H

#include "python/state.h"

int dlpy_add_collective_functions(PyObject *module);

/* Those between lists of arrays, or blocks of one. */
int dlpy_add_collective_lists(PyObject *module);

#endif
