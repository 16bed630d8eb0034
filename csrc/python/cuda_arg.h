/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays in CUDA memory, and the streams that their libraries work on.  A library is
 * asked for its current stream: by DLPack's table of functions, if the array's type has
 * one, else torch and CuPy by way of their modules, which are imported anyway.  An array of another library is ordered by the stream it names itself
 * (`__cuda_array_interface__`), or, failing that, by the default stream.  What the caller
 * has set for this thread takes the place of all these, and what the call itself says,
 * the place of that. */
#ifndef DISTLITE_PYTHON_CUDA_ARG_H
#define DISTLITE_PYTHON_CUDA_ARG_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/dlpack_exchange.h"
#include "tensor/tensor.h"

/* As dlpy_dlpack_view(), through `__cuda_array_interface__`. */
int dlpy_cuda_view(PyObject *object, const char *parameter, dl_tensor *view,
                   dlpy_dimensions *dimensions, PyObject **owner);

/* Gives a view on a device its stream: `object` tells the library.  Remembers the library
 * for dlpy_cuda_library(). */
int dlpy_cuda_give_stream(PyObject *object, dl_tensor *view);

/* Whose array this thread has looked at last: what a Work made now will wait on behalf
 * of. */
typedef struct dlpy_cuda_origin {
    const dlpack_exchange *table; /* of its type; NULL: none */
    dlpy_library library;
    int device;
    void *stream; /* that the array named itself */
} dlpy_cuda_origin;

dlpy_cuda_origin dlpy_cuda_last_origin(void);

/* Where such a library works now.  1: it has no such stream, and this is the array's own;
 * -1 with an exception set. */
int dlpy_cuda_current_stream(const dlpy_cuda_origin *origin, void **stream);

/* Of a call without arrays: the thread's, or that of torch or CuPy if they are in use, or
 * the default one. */
int dlpy_cuda_stream_in_use(void **stream);

/* The call's own stream, an object or a number, for all arrays it looks at until it is
 * taken back; that says whether any of them is on a device. */
int dlpy_cuda_name_stream(PyObject *stream);
bool dlpy_cuda_unname_stream(void);

/* Module functions around streams. */
int dlpy_add_device_functions(PyObject *module);

/* _set_cuda_stream(stream or None): for arrays of this thread; returns the last. */
PyObject *dlpy_set_cuda_stream(PyObject *module, PyObject *stream);

#endif
