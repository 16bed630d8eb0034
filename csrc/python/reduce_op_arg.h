/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions as arguments.  Their classes are written in Python (reduce_op.py), which
 * tells the module about them when it is imported. */
#ifndef DISTLITE_PYTHON_REDUCE_OP_ARG_H
#define DISTLITE_PYTHON_REDUCE_OP_ARG_H

#include "python/state.h"
#include "tensor/reduce.h"

/* ReduceOp.SUM or ReduceOp(ReduceOp.SUM); NULL is SUM.  `factor` is that of PREMUL_SUM,
 * which must have one. */
int dlpy_reduce_op_from(const dlpy_state *state, PyObject *object, dl_reduce_op *op,
                        double *factor);

/* _set_reduce_op_types(members, wrapper): the two classes. */
PyObject *dlpy_set_reduce_op_types(PyObject *module, PyObject *const *args,
                                   Py_ssize_t count, PyObject *keywords);

#endif
