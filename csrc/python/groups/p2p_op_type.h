/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The base class of P2POp (groups/p2p.py): an isend or irecv for batch_isend_irecv().
 * It has the members, and the constructor for the usual arguments: an array of NumPy or
 * a tensor of torch, a peer, and the default group. */
#ifndef DISTLITE_PYTHON_GROUPS_P2P_OP_TYPE_H
#define DISTLITE_PYTHON_GROUPS_P2P_OP_TYPE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The members belong to the program, which may set them to anything. */
typedef struct dlpy_p2p_op {
    PyObject_HEAD PyObject *op; /* NULL if deleted or not set, like the others */
    PyObject *tensor;
    PyObject *group;
    PyObject *tag;
    PyObject *peer;
    PyObject *group_peer;
} dlpy_p2p_op;

/* Returns 1 for the function isend, 0 for irecv, and -1, without an exception, for any
 * other object. */
int dlpy_message_direction(PyObject *function);

#endif
