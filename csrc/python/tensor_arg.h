/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Array arguments to dl_tensor.  tensor_arg.c is the only file that includes NumPy, whose
 * C interface it looks up when the first array comes along: importing distlite does not
 * import numpy, and programs that pass torch tensors never do. */
#ifndef DISTLITE_PYTHON_TENSOR_ARG_H
#define DISTLITE_PYTHON_TENSOR_ARG_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/dlpack_arg.h"
#include "python/torch_tensor.h"
#include "tensor/tensor.h"

/* The view borrows shape and memory from the argument, which the caller keeps alive, and
 * from `owner` until released; it may point into this struct, which stays where it is. */
typedef struct dlpy_tensor {
    dl_tensor view;
    PyObject *owner;  /* NULL where the argument itself is that */
    bool is_borrowed; /* by DLPack's table, from an array that may get other memory */
    bool is_torch;    /* a tensor of torch's, however it was viewed */
    dlpy_dimensions dimensions;
} dlpy_tensor;

/* Where the elements of an array lie, of all its own ones. */
typedef struct dlpy_memory {
    const void *data;
    size_t size;
    const void *shape; /* of an ndarray; moves when that is resized */
} dlpy_memory;

/* The ndarray whose elements those of `array` are, borrowed; NULL: `array` is no ndarray,
 * or the elements are of something else, which it holds. */
PyObject *dlpy_ndarray_owner(PyObject *array);

/* Without the GIL too: of a resize at the same time it may see any part. */
void dlpy_ndarray_memory(PyObject *owner, dlpy_memory *memory);

/* An ndarray, or whatever has DLPack, `__array_interface__` or a buffer, with any
 * strides.  What is not aligned to its element size counts as not contiguous, which is
 * how the core knows that it cannot compute in place.  0, or -1 with an exception set
 * (TypeError: no array; ValueError: one that cannot be used as it is) and nothing to
 * release.  `parameter` names the argument in errors. */
int dlpy_tensor_from(PyObject *object, const char *parameter, dlpy_tensor *tensor);

void dlpy_tensor_drop_owner(dlpy_tensor *tensor);

/* Leaves an exception that is set as it is. */
static inline void
dlpy_tensor_release(dlpy_tensor *tensor)
{
    if (tensor->owner != NULL) {
        dlpy_tensor_drop_owner(tensor);
    }
}

/* Of a tensor of torch's, or of arrays that count as one. */
int dlpy_tensor_count_write(const dlpy_tensor *tensor, PyObject *array);

/* To be called for each array that an operation is going to write to, before it does: see
 * dlpy_torch_note_write().  -1 with an exception set. */
static inline int
dlpy_tensor_note_write(const dlpy_tensor *tensor, PyObject *array)
{
    bool is_counted = tensor->is_torch || tensor->view.pieces != NULL;

    return is_counted ? dlpy_tensor_count_write(tensor, array) : 0;
}

#endif
