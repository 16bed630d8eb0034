/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions as arguments.  Their classes are written in Python (reduce_op.py), which
 * registers them with the module when it is imported. */
#ifndef DISTLITE_PYTHON_REDUCE_OP_ARG_H
#define DISTLITE_PYTHON_REDUCE_OP_ARG_H

#include "python/state.h"
#include "tensor/reduce.h"

/* Converts a reduction, such as ReduceOp.SUM or ReduceOp(ReduceOp.SUM); NULL means SUM.
 * `*factor` is the factor of PREMUL_SUM, which must have one, and 1 otherwise.  Returns
 * 0, or -1 with an exception set. */
int dlpy_reduce_op_from(const dlpy_state *state, PyObject *object, dl_reduce_op *op,
                        double *factor);

/* The module function _set_reduce_op_types(members, wrapper), which registers the two
 * classes. */
PyObject *dlpy_set_reduce_op_types(PyObject *module, PyObject *const *args,
                                   Py_ssize_t count, PyObject *keywords);

#endif
