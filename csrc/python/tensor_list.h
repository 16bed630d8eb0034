/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lists of array arguments, with one array for each rank of a group. */
#ifndef DISTLITE_PYTHON_TENSOR_LIST_H
#define DISTLITE_PYTHON_TENSOR_LIST_H

#include "python/tensor_arg.h"

typedef struct dlpy_tensor_list {
    dl_tensor *views; /* passed to the core */
    dlpy_tensor *tensors;
    PyObject *items; /* tuple of the arrays, which keeps them alive */
    int count;
} dlpy_tensor_list;

/* Converts a list of `count` arrays.  Returns 0, or -1 with an exception set and
 * nothing to release. */
int dlpy_tensor_list_from(PyObject *object, const char *parameter, int count,
                          dlpy_tensor_list *list);
void dlpy_tensor_list_release(dlpy_tensor_list *list);

/* Returns a new reference to everything that must stay alive for the views: the tuple
 * of arrays, or a tuple that also has the views' owners, or None for a zeroed list. */
PyObject *dlpy_tensor_list_pins(const dlpy_tensor_list *list);

#endif
