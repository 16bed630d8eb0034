/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The way in for methods of ProcessGroup that are written in Python
 * (distlite/group_methods.py): torch's forms of the operations, with option structs and
 * overloads, which cost more to tell apart than to call.  Knows nothing of what they
 * are. */
#ifndef DISTLITE_PYTHON_GROUP_METHODS_H
#define DISTLITE_PYTHON_GROUP_METHODS_H

#include "python/state.h"

/* Adds `_add_group_methods` to the module, whose types exist by then. */
int dlpy_add_group_methods(PyObject *module);

#endif
