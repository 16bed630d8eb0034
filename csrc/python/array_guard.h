/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory of the arrays of an operation that nobody waits for: held, as far as its
 * owner can be, and looked at again before the operation touches it.  Holding an array is
 * not enough: `t.data = u`, `set_()` and `resize_()` give a tensor of torch other memory,
 * `resize(refcheck=False)` an array of NumPy, and free what it had. */
#ifndef DISTLITE_PYTHON_ARRAY_GUARD_H
#define DISTLITE_PYTHON_ARRAY_GUARD_H

#include "pg/guard.h"
#include "python/tensor_arg.h"

/* One owner of memory, and where that was. */
typedef struct dlpy_hold {
    PyObject *owner; /* an ndarray that owns its elements, a storage, or a capsule */
    PyObject *array; /* the tensor of a storage; else NULL */
    union {
        dlpy_memory of_ndarray; /* no data: of a capsule, which stays where it is */
        dlpy_torch_memory of_torch;
    };
} dlpy_hold;

/* Zeroed: holds nothing, and finds nothing wrong. */
typedef struct dlpy_guard {
    dl_guard core;
    int count;
    dlpy_hold near[2]; /* enough for most */
    dlpy_hold *far;    /* the rest; NULL: none */
} dlpy_guard;

/* `tensor` is what dlpy_tensor_from() made of the array.  -1 with an exception set. */
int dlpy_guard_add(dlpy_guard *guard, PyObject *array, const dlpy_tensor *tensor);

/* The `index`-th object held, from 0, some of them NULL. */
PyObject *dlpy_guard_at(const dlpy_guard *guard, int index);

/* How many these are. */
static inline int
dlpy_guard_size(const dlpy_guard *guard)
{
    return 2 * guard->count;
}

void dlpy_guard_clear(dlpy_guard *guard);

/* For the core, while the struct stays where it is; NULL: there is nothing to look at. */
const dl_guard *dlpy_guard_core(dlpy_guard *guard);

#endif
