/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays of types that offer DLPack's table of C functions (torch 2.13 does): a view
 * costs some nanoseconds, and no capsule, instead of two microseconds.  What the table
 * does not look at, pending conjugations and signs, is looked at here. */
#ifndef DISTLITE_PYTHON_DLPACK_EXCHANGE_H
#define DISTLITE_PYTHON_DLPACK_EXCHANGE_H

#include "python/dlpack_arg.h"

/* 1: `view` borrows the elements from the object, which the caller holds, and shape and
 * strides from `dimensions`.  0: the type has no such table, or it does not take this object.
 * -1: an exception is set. */
int dlpy_exchange_view(PyObject *object, const char *parameter, dl_tensor *view,
                       dlpy_dimensions *dimensions);

#endif
