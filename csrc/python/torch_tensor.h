/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What DLPack does not tell of torch's tensors: where their elements lie at any moment,
 * from threads without the GIL, and the version by which autograd sees that a tensor was
 * written to.  torch exports functions for both, which take a reference to the tensor.
 * That reference is part of the Python object; where, is found with the first tensor, by
 * the address that torch tells, and all functions are compared with what torch says in
 * Python before they are used.  A torch that differs is asked in Python for versions, and
 * cannot be asked for memory. */
#ifndef DISTLITE_PYTHON_TORCH_TENSOR_H
#define DISTLITE_PYTHON_TORCH_TENSOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* Where the elements of a tensor begin, and how large its whole storage is. */
typedef struct dlpy_torch_memory {
    const void *data;
    int64_t storage_size;
} dlpy_torch_memory;

/* Whether dlpy_torch_memory_of() works for `tensor`, of torch's type or one derived from
 * it; with the GIL.  Leaves no exception. */
bool dlpy_torch_can_look(PyObject *tensor);

/* False: the tensor has no memory.  From any thread, without the GIL, while somebody holds
 * the tensor and the storage that it had.  Another thread may give the tensor other memory
 * at the same time, which torch does without the GIL as well: what is found may be out of
 * date by the time it is used, as with any other way to ask. */
bool dlpy_torch_memory_of(PyObject *tensor, dlpy_torch_memory *memory);

/* For tensors that an operation is going to write to: makes their version one more, so that
 * autograd raises where it needs what was there, and warns, once per process, if autograd
 * would take the result for what it was.  -1: the warning is an exception. */
int dlpy_torch_note_write(PyObject *tensor);

#endif
