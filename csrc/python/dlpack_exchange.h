/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays of types that offer DLPack's table of C functions (torch 2.13 does): a view
 * costs some nanoseconds, and no capsule, instead of two microseconds.  What the table
 * does not look at, pending conjugations and signs, is looked at here. */
#ifndef DISTLITE_PYTHON_DLPACK_EXCHANGE_H
#define DISTLITE_PYTHON_DLPACK_EXCHANGE_H

#include "python/array_library.h"
#include "python/dlpack_arg.h"
#include "python/dlpack_layout.h"

/* The table of a type, NULL if it has none; and the library, of any type. */
const dlpack_exchange *dlpy_exchange_find(PyTypeObject *type, dlpy_library *library);

/* 1: `view` borrows the elements from the object, which the caller holds, and shape and
 * strides from `dimensions`.  0: the type has no such table, is not of a library whose
 * arrays anybody may write to, or the table does not take this object.
 * -1: an exception is set. */
int dlpy_exchange_view(PyObject *object, const char *parameter, dl_tensor *view,
                       dlpy_dimensions *dimensions);

/* A capsule that owns the memory of an array which was viewed so. */
PyObject *dlpy_exchange_own(PyObject *object);

#endif
