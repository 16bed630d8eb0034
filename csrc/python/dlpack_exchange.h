/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays whose types offer DLPack's table of C functions (torch 2.13 does): a view
 * takes some nanoseconds and no capsule, instead of two microseconds.  The table
 * ignores pending conjugations and negations; they are checked here. */
#ifndef DISTLITE_PYTHON_DLPACK_EXCHANGE_H
#define DISTLITE_PYTHON_DLPACK_EXCHANGE_H

#include "python/array_library.h"
#include "python/dlpack_arg.h"
#include "python/dlpack_layout.h"

/* Returns the table of a type, or NULL if it has none; `*library` is set for any
 * type. */
const dlpack_exchange *dlpy_exchange_find(PyTypeObject *type, dlpy_library *library);

/* Returns 1 if `view` is set; it borrows the elements from the object, which the caller
 * holds, and shape and strides from `dimensions`.  Returns 0 if the type has no such
 * table, belongs to a library whose arrays may be read-only, or if the table rejects
 * this object.  Returns -1 with an exception set on failure. */
int dlpy_exchange_view(PyObject *object, const char *parameter, dl_tensor *view,
                       dlpy_dimensions *dimensions);

/* Returns a capsule that owns the memory of an array viewed by dlpy_exchange_view(),
 * None if the table cannot export it, or NULL with an exception set. */
PyObject *dlpy_exchange_own(PyObject *object);

#endif
