/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays in CUDA memory, and the streams that their libraries work on.
 *
 * The stream of an array is the first of these that exists: the `stream` argument of
 * the call; the stream set for this thread; the current stream of the library, from the
 * DLPack exchange table of the array's type, or else from the modules of torch and CuPy
 * if they are imported; the stream that the array names in `__cuda_array_interface__`;
 * the default stream. */
#ifndef DISTLITE_PYTHON_ARRAYS_CUDA_ARG_H
#define DISTLITE_PYTHON_ARRAYS_CUDA_ARG_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/arrays/dlpack.h"
#include "tensor/tensor.h"

/* Returns the stream that the array's library should order its memory by when it
 * exports it through `__dlpack__`: DLPY_DLPACK_NO_STREAM if the library tells its current
 * stream, or else the stream that the operation will follow. */
intptr_t dlpy_cuda_export_stream(PyObject *object);

/* Same as dlpy_dlpack_view(), through `__cuda_array_interface__`. */
int dlpy_cuda_view(PyObject *object, const char *parameter, dl_tensor *view,
                   dlpy_dimensions *dimensions, PyObject **owner);

/* Sets the stream of a view on a device; the type of `object` determines the library.
 * Records the array's origin for dlpy_cuda_last_origin(). */
int dlpy_cuda_give_stream(PyObject *object, dl_tensor *view);

/* The origin of the device array that this thread converted last.  A Work created next
 * waits on behalf of that library's stream. */
typedef struct dlpy_cuda_origin {
    const dlpack_exchange *table; /* of the array's type; NULL if it has none */
    dlpy_library library;
    int device;
    void *stream; /* the stream that the array named itself */
} dlpy_cuda_origin;

dlpy_cuda_origin dlpy_cuda_last_origin(void);

/* Stores the current stream of the origin's library.  Returns 0; 1 if the library has
 * no current stream, in which case `*stream` is the array's own; -1 with an exception
 * set. */
int dlpy_cuda_current_stream(const dlpy_cuda_origin *origin, void **stream);

/* Returns in `*stream` the stream for a call without arrays: the thread's, or else the
 * current stream of torch or CuPy if one of them is imported, or else the default
 * stream. */
int dlpy_cuda_stream_in_use(void **stream);

/* Sets the `stream` argument of a call, an object or a number, for all arrays converted
 * until dlpy_cuda_unname_stream().  The latter returns whether any of those arrays is
 * on a device. */
int dlpy_cuda_name_stream(PyObject *stream);
bool dlpy_cuda_unname_stream(void);

/* The module function _set_cuda_stream(stream or None): sets the stream for arrays of
 * this thread and returns the previous one. */
PyObject *dlpy_set_cuda_stream(PyObject *module, PyObject *stream);

#endif
