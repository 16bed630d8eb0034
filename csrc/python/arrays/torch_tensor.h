/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Facts about torch tensors that DLPack does not tell: where their elements are at any
 * moment, read on threads without the GIL, and the version counter by which autograd
 * detects writes.
 *
 * torch exports functions for both, which take a reference to the tensor.  That
 * reference is inside the Python object; its offset is found with the first tensor by
 * comparing words with the address that torch reports.  All functions are compared with
 * the answers of torch's Python interface before they are used.  If torch differs,
 * versions are handled in Python, and memory cannot be read. */
#ifndef DISTLITE_PYTHON_ARRAYS_TORCH_TENSOR_H
#define DISTLITE_PYTHON_ARRAYS_TORCH_TENSOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "base/library.h"

/* Binds functions that torch's libraries export.  Returns false if torch is not
 * imported, or lacks one of them.  Needs the GIL; sets no exception. */
bool dlpy_torch_bind(dl_symbol_list list, void *functions);

/* Where a tensor's elements begin, and the size of its whole storage. */
typedef struct dlpy_torch_memory {
    const void *data;
    int64_t storage_size;
} dlpy_torch_memory;

/* Returns whether dlpy_torch_memory_of() works for `tensor`, which is of torch's type
 * or one derived from it.  Needs the GIL; sets no exception. */
bool dlpy_torch_can_look(PyObject *tensor);

/* Reads the memory of a tensor.  Returns false if it has none.  May be called on any
 * thread without the GIL while the caller holds the tensor and the storage that it had.
 * torch itself changes a tensor's memory without the GIL, so, as with any other way to
 * read it, the result may be out of date when it is used. */
bool dlpy_torch_memory_of(PyObject *tensor, dlpy_torch_memory *memory);

/* Increments the version of a tensor that an operation is going to write to, so that
 * autograd raises where it needs the previous contents.  Warns, once per process, if
 * autograd would use the result as if it were the previous contents.  Returns -1 with
 * an exception set, also if the warning was turned into one. */
int dlpy_torch_note_write(PyObject *tensor);

#endif
