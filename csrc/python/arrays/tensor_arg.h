/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Converts array arguments to dl_tensor.  tensor_arg.c is the only file that includes
 * NumPy, whose C interface is loaded with the first array: importing distlite does not
 * import numpy, and programs that pass only torch tensors never load it. */
#ifndef DISTLITE_PYTHON_ARRAYS_TENSOR_ARG_H
#define DISTLITE_PYTHON_ARRAYS_TENSOR_ARG_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/arrays/dlpack.h"
#include "python/arrays/torch_tensor.h"
#include "tensor/tensor.h"

/* An array argument.  The view borrows shape and memory from the argument, which the
 * caller keeps alive, and from `owner` until released.  It may point into this struct,
 * which must not be moved. */
typedef struct dlpy_tensor {
    dl_tensor view;
    PyObject *owner;  /* NULL if the argument itself owns the memory */
    bool is_borrowed; /* viewed by DLPack's table; may get other memory */
    bool is_torch;    /* a torch tensor, however it was viewed */
    dlpy_dimensions dimensions;
} dlpy_tensor;

/* The memory of an array that owns its elements. */
typedef struct dlpy_memory {
    const void *data;
    size_t size;
    const void *shape; /* of an ndarray; changes when it is resized */
} dlpy_memory;

/* Returns the ndarray that owns the elements of `array`, borrowed.  Returns NULL if
 * `array` is not an ndarray, or if another object, which it holds, owns the
 * elements. */
PyObject *dlpy_ndarray_owner(PyObject *array);

/* Reads the array's memory.  Needs no GIL; a concurrent resize may be seen
 * partially. */
void dlpy_ndarray_memory(PyObject *owner, dlpy_memory *memory);

/* The loop of a ufunc for two inputs and an output of one dtype.  It is called without
 * the GIL, and reports errors by the flags of <fenv.h>. */
typedef struct dlpy_ufunc_loop {
    /* Pointers to the inputs and the output, how many elements, and their strides. */
    void (*run)(char **args, const Py_ssize_t *count, const Py_ssize_t *strides,
                void *data);
    void *data;
} dlpy_ufunc_loop;

/* Finds the loop for NumPy's number of a dtype.  Returns false if the ufunc, which
 * `object` has to be, has none. */
bool dlpy_ufunc_find_loop(PyObject *object, int type_number, dlpy_ufunc_loop *loop);

/* Converts an ndarray, or an object with DLPack, `__array_interface__`,
 * `__cuda_array_interface__` or a buffer, with any strides.  An array that is not
 * aligned to its element size counts as not contiguous, so the core does not compute in
 * place.
 *
 * Returns 0; or -1 with an exception set and nothing to release: TypeError if the
 * object is not an array, ValueError if the array cannot be used as it is.  `parameter`
 * names the argument in error messages. */
int dlpy_tensor_from(PyObject *object, const char *parameter, dlpy_tensor *tensor);

/* Returns whether the object is an ndarray or a torch tensor, which have an array
 * interface.  Sets no exception. */
bool dlpy_tensor_is_known(PyObject *object);

void dlpy_tensor_drop_owner(dlpy_tensor *tensor);

/* Releases the owner.  Preserves an exception that is set. */
static inline void
dlpy_tensor_release(dlpy_tensor *tensor)
{
    if (tensor->owner != NULL) {
        dlpy_tensor_drop_owner(tensor);
    }
}

/* A pack is several arrays that an operation takes as one, for coalesced calls
 * (packing.py); it is passed like any array, and only this package makes packs (pack.c).
 *
 * Returns true if `object` is a pack, and stores its view, which is valid as long as the
 * pack. */
bool dlpy_pack_view(PyObject *object, dl_tensor *view);

/* Calls dlpy_torch_note_write() for each torch tensor of a pack. */
int dlpy_pack_note_write(PyObject *pack);

/* Returns 0, or -1 with a TypeError set if `object` is neither a list nor a tuple. */
int dlpy_array_list_check(PyObject *object);

/* The part of dlpy_tensor_note_write() for a torch tensor, or a pack of arrays that may
 * be torch tensors. */
int dlpy_tensor_count_write(const dlpy_tensor *tensor, PyObject *array);

/* Must be called for each array before an operation writes to it: see
 * dlpy_torch_note_write().  Returns -1 with an exception set on failure. */
static inline int
dlpy_tensor_note_write(const dlpy_tensor *tensor, PyObject *array)
{
    bool is_counted = tensor->is_torch || tensor->view.pieces != NULL;

    return is_counted ? dlpy_tensor_count_write(tensor, array) : 0;
}

#endif
