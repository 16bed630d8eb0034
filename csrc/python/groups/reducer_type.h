/* SPDX-License-Identifier: BSD-3-Clause
 *
 * _Reducer: the Python object around a dl_reducer, which groups/reducers.py makes for a
 * reduction that has no kernel and arrays of one dtype. */
#ifndef DISTLITE_PYTHON_GROUPS_REDUCER_TYPE_H
#define DISTLITE_PYTHON_GROUPS_REDUCER_TYPE_H

#include "python/arrays/tensor_arg.h"
#include "python/module/state.h"
#include "tensor/reduce.h"
#include "tensor/reducer.h"

/* Returns a new reference to the _Reducer of `op`, for which `object` was given, and
 * the array that `tensor` views; NULL with an exception set if there is none. */
PyObject *dlpy_reducer_for(const dlpy_state *state, dl_reduce_op op, PyObject *object,
                           PyObject *array, const dlpy_tensor *tensor);

const dl_reducer *dlpy_reducer_core(const PyObject *reducer);

/* After a reduction has failed with an exception set: if it was the reducer's Python
 * function that failed, here, its exception becomes the cause of the one that is set,
 * or takes its place if it ends the program, as KeyboardInterrupt does. */
void dlpy_reducer_explain(PyObject *reducer);

#endif
