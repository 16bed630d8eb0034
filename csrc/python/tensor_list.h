/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lists of array arguments, one array for each rank of a group. */
#ifndef DISTLITE_PYTHON_TENSOR_LIST_H
#define DISTLITE_PYTHON_TENSOR_LIST_H

#include "python/tensor_arg.h"

typedef struct dlpy_tensor_list {
    dl_tensor *views; /* what the core is given */
    dlpy_tensor *tensors;
    PyObject *items; /* tuple: the arrays, so that nobody takes them away meanwhile */
    int count;
} dlpy_tensor_list;

/* A list of `count` arrays.  After a failure there is nothing to release. */
int dlpy_tensor_list_from(PyObject *object, const char *parameter, int count,
                          dlpy_tensor_list *list);
void dlpy_tensor_list_release(dlpy_tensor_list *list);

/* All that has to stay alive for the list's sake: its arrays, if that is all; None. */
PyObject *dlpy_tensor_list_pins(const dlpy_tensor_list *list);

#endif
