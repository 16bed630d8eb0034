/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays of other libraries (torch, JAX, CuPy, ...) through the DLPack protocol: a
 * capsule that holds the memory, and a struct in it that tells where and what it is.
 * The struct's layout is declared here by hand, so no header of DLPack is needed, and
 * the other library is never imported. */
#ifndef DISTLITE_PYTHON_DLPACK_ARG_H
#define DISTLITE_PYTHON_DLPACK_ARG_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/tensor.h"

/* More than any library known has. */
#define DLPY_DLPACK_DIMENSIONS 64

/* 1: `view` borrows from `*capsule` and from `strides`, which must outlive it and has
 * room for DLPY_DLPACK_DIMENSIONS.  0: the object has no `__dlpack__`.  -1: an exception
 * is set, also for memory that is not the CPU's; `parameter` names the argument in it.
 * `*capsule` is a new reference or NULL in any case. */
int dlpy_dlpack_view(PyObject *object, const char *parameter, dl_tensor *view,
                     int64_t *strides, PyObject **capsule);

#endif
