/* SPDX-License-Identifier: BSD-3-Clause
 *
 * _SharedMemory: the bytes that a group's ranks can reach in place, for distlite/shared.py
 * to make arrays of.  It lives as long as anybody has a view of it, and knows nothing of
 * shapes. */
#ifndef DISTLITE_PYTHON_SHARED_TYPE_H
#define DISTLITE_PYTHON_SHARED_TYPE_H

#include "python/state.h"

int dlpy_add_shared_type(PyObject *module);

#endif
