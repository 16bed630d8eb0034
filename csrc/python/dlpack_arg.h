/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays of other libraries (torch, JAX, CuPy, ...) through the DLPack protocol: a
 * capsule that holds the memory, and a struct in it that tells where and what it is.
 * The other library is never imported. */
#ifndef DISTLITE_PYTHON_DLPACK_ARG_H
#define DISTLITE_PYTHON_DLPACK_ARG_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/tensor.h"

/* More than any library known has. */
#define DLPY_DLPACK_DIMENSIONS 64

/* Where a view's shape and strides are kept: the array's own may change while the core
 * works without the GIL. */
typedef struct dlpy_dimensions {
    int64_t shape[DLPY_DLPACK_DIMENSIONS];
    int64_t strides[DLPY_DLPACK_DIMENSIONS];
} dlpy_dimensions;

struct dlpack_tensor;

/* The struct as a view, without its read-only flag, which others know.  0, or -1 with an
 * exception set. */
int dlpy_dlpack_read(const struct dlpack_tensor *tensor, const char *parameter,
                     dl_tensor *view, dlpy_dimensions *dimensions);

/* 1: `view` borrows from `*capsule` and from `dimensions`, which must outlive it.  0: the object has no `__dlpack__`.  -1: an exception
 * is set, also for memory that is not the CPU's; `parameter` names the argument in it.
 * `*capsule` is a new reference or NULL in any case. */
int dlpy_dlpack_view(PyObject *object, const char *parameter, dl_tensor *view,
                     dlpy_dimensions *dimensions, PyObject **capsule);

#endif
