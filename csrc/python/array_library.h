/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whose arrays a type's are.  Two things are asked of the library, and not of the array:
 * which stream its work goes to, and whether arrays may be written to whose export does
 * not say so. */
#ifndef DISTLITE_PYTHON_ARRAY_LIBRARY_H
#define DISTLITE_PYTHON_ARRAY_LIBRARY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef enum dlpy_library {
    DLPY_LIBRARY_OTHER = 0,
    DLPY_LIBRARY_TORCH = 1,
    DLPY_LIBRARY_CUPY = 2,
} dlpy_library;

/* By the modules of the type and of those it is derived from: a class of a user's own
 * whose base is torch.Tensor is torch's. */
dlpy_library dlpy_library_of(PyTypeObject *type);

#endif
