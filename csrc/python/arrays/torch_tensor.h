/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What DLPack does not tell about torch tensors.  Versions, by which autograd detects
 * writes, are counted through torch's Python interface.  Where the elements of a tensor
 * are at any moment is asked through torch's stable C interface (AtenTensorHandle of
 * torch/csrc/inductor/aoti_torch/c/shim.h), because threads without the GIL ask, some
 * of them with a lock held.  A torch without that interface is asked nothing. */
#ifndef DISTLITE_PYTHON_ARRAYS_TORCH_TENSOR_H
#define DISTLITE_PYTHON_ARRAYS_TORCH_TENSOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* A reference to a tensor that is independent of its Python object. */
typedef struct dlpy_torch_handle dlpy_torch_handle;

/* Where a tensor's elements begin, and the size of its whole storage. */
typedef struct dlpy_torch_memory {
    const void *data;
    int64_t storage_size;
} dlpy_torch_memory;

/* Returns a reference to `tensor`, which is of torch's type or one derived from it, to
 * be dropped by dlpy_torch_drop().  Returns NULL if torch lacks the interface.  Needs the
 * GIL; sets no exception. */
dlpy_torch_handle *dlpy_torch_hold(PyObject *tensor);

/* Needs the GIL.  NULL is ignored. */
void dlpy_torch_drop(dlpy_torch_handle *handle);

/* Reads the memory of a tensor.  Returns false if it has none.  May be called on any
 * thread without the GIL while the caller holds the storage that the tensor had.  torch
 * itself changes a tensor's memory without the GIL, so, as with any other way to read
 * it, the result may be out of date when it is used. */
bool dlpy_torch_memory_of(dlpy_torch_handle *handle, dlpy_torch_memory *memory);

/* Increments the version of a tensor that an operation is going to write to, so that
 * autograd raises where it needs the previous contents.  Warns, once per process, if
 * autograd would use the result as if it were the previous contents.  Returns -1 with
 * an exception set, also if the warning was turned into one. */
int dlpy_torch_note_write(PyObject *tensor);

#endif
