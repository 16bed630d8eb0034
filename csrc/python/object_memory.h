/* SPDX-License-Identifier: BSD-3-Clause
 *
 * _SpareMemory: what the arrays in received objects lie in, for object_message.py; it is
 * used again when nobody has a view of it any more. */
#ifndef DISTLITE_PYTHON_OBJECT_MEMORY_H
#define DISTLITE_PYTHON_OBJECT_MEMORY_H

#include "python/state.h"

int dlpy_add_object_memory(PyObject *module);

#endif
