/* SPDX-License-Identifier: BSD-3-Clause
 *
 * _SpareMemory: the memory that holds the arrays of received objects, for
 * object_message.py.  It is reused once no views of it exist. */
#ifndef DISTLITE_PYTHON_OBJECT_MEMORY_H
#define DISTLITE_PYTHON_OBJECT_MEMORY_H

#include "python/state.h"

int dlpy_add_object_memory(PyObject *module);

#endif
