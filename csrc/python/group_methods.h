/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lets distlite/group_methods.py add methods to ProcessGroup: torch's forms of the
 * operations, with option structs and overloads, which take longer to tell apart than
 * to call.  Knows nothing of what the methods do. */
#ifndef DISTLITE_PYTHON_GROUP_METHODS_H
#define DISTLITE_PYTHON_GROUP_METHODS_H

#include "python/state.h"

/* Adds `_add_group_methods` to the module, whose types must exist. */
int dlpy_add_group_methods(PyObject *module);

#endif
