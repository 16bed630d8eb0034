/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays of other libraries (torch, JAX, CuPy, ...) through the DLPack protocol: a
 * capsule that holds the memory, with a struct that describes it.  Never imports the
 * other library. */
#ifndef DISTLITE_PYTHON_DLPACK_ARG_H
#define DISTLITE_PYTHON_DLPACK_ARG_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/tensor.h"

/* More dimensions than any known library supports. */
#define DLPY_DLPACK_DIMENSIONS 64

/* A view's own copy of shape and strides: those of the array may change while the core
 * works without the GIL. */
typedef struct dlpy_dimensions {
    int64_t shape[DLPY_DLPACK_DIMENSIONS];
    int64_t strides[DLPY_DLPACK_DIMENSIONS];
} dlpy_dimensions;

struct dlpack_tensor;

/* Converts the struct to a view.  The caller sets `is_writable`, which the struct does
 * not tell.  Returns 0, or -1 with an exception set. */
int dlpy_dlpack_read(const struct dlpack_tensor *tensor, const char *parameter,
                     dl_tensor *view, dlpy_dimensions *dimensions);

/* Exports the object through `__dlpack__`.  Returns 1 if `view` is set; it borrows from
 * `*capsule` and `dimensions`, which must outlive it.  Returns 0 if the object has no
 * `__dlpack__`, and -1 with an exception set on failure, for example for memory of an
 * unsupported device.  `parameter` names the argument in error messages.  `*capsule` is
 * a new reference or NULL in every case. */
int dlpy_dlpack_view(PyObject *object, const char *parameter, dl_tensor *view,
                     dlpy_dimensions *dimensions, PyObject **capsule);

#endif
