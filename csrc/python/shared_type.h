/* SPDX-License-Identifier: BSD-3-Clause
 *
 * _SharedMemory: memory that a group's ranks can access in place, from which
 * distlite/shared.py creates arrays.  It exists as long as there are views of it, and
 * knows nothing of shapes. */
#ifndef DISTLITE_PYTHON_SHARED_TYPE_H
#define DISTLITE_PYTHON_SHARED_TYPE_H

#include "python/state.h"

int dlpy_add_shared_type(PyObject *module);

#endif
