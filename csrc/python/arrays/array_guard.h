/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Guards the memory of the arrays of an asynchronous or batched operation: keeps the
 * memory alive where its owner allows that, and lets the core check, before it touches
 * an array, that the array has not moved.  A reference to the array alone is not
 * enough: `t.data = u`, `set_()` and `resize_()` of a torch tensor, and
 * `resize(refcheck=False)` of a NumPy array, give the object other memory and free the
 * previous one. */
#ifndef DISTLITE_PYTHON_ARRAYS_ARRAY_GUARD_H
#define DISTLITE_PYTHON_ARRAYS_ARRAY_GUARD_H

#include "pg/call.h"
#include "python/arrays/tensor_arg.h"

/* One owner of memory, and where that memory was when the operation was called. */
typedef struct dlpy_hold {
    PyObject *owner; /* the ndarray that owns the elements, a storage, or a capsule */
    dlpy_torch_handle *tensor; /* that uses the storage; NULL for other owners */
    union {
        dlpy_memory of_ndarray; /* data is NULL for a capsule: it cannot move */
        dlpy_torch_memory of_torch;
    };
} dlpy_hold;

/* A zeroed guard is valid: it holds nothing and its check succeeds. */
typedef struct dlpy_guard {
    dl_guard core;
    int count;
    dlpy_hold near[2]; /* enough for most operations */
    dlpy_hold *far;    /* the remaining holds; NULL if there are none */
} dlpy_guard;

/* Adds the memory of `array` to the guard; `tensor` is the result of dlpy_tensor_from()
 * for it.  An array whose memory cannot be checked is not added, which is not an error.
 * Returns -1 with an exception set on failure. */
int dlpy_guard_add(dlpy_guard *guard, PyObject *array, const dlpy_tensor *tensor);

/* Adds each array of a pack; dlpy_guard_add() calls it (pack.c). */
int dlpy_pack_guard(dlpy_guard *guard, PyObject *pack);

/* Returns the `index`-th of the `count` owners that the guard holds, as a borrowed
 * reference. */
PyObject *dlpy_guard_at(const dlpy_guard *guard, int index);

void dlpy_guard_clear(dlpy_guard *guard);

/* Returns the guard for the core, valid as long as `guard` is not moved.  Returns NULL
 * if there is nothing to check. */
const dl_guard *dlpy_guard_core(dlpy_guard *guard);

#endif
