/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Determines which library an array type belongs to.  Two things depend on the library
 * rather than on the array: which stream its work is queued on, and whether arrays may
 * be written to if their export does not say so. */
#ifndef DISTLITE_PYTHON_ARRAY_LIBRARY_H
#define DISTLITE_PYTHON_ARRAY_LIBRARY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef enum dlpy_library {
    DLPY_LIBRARY_OTHER = 0,
    DLPY_LIBRARY_TORCH = 1,
    DLPY_LIBRARY_CUPY = 2,
} dlpy_library;

/* Decides by the modules of the type and of its base classes: a user's class derived
 * from torch.Tensor belongs to torch. */
dlpy_library dlpy_library_of(PyTypeObject *type);

#endif
