/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The description of a call on objects: _ObjectCall, of which object_call.py's Call is a
 * subclass.  A group keeps those of its latest calls (kept_calls.c), because it takes
 * longer to make one than to exchange a small object. */
#ifndef DISTLITE_PYTHON_OBJECTS_OBJECT_CALL_H
#define DISTLITE_PYTHON_OBJECTS_OBJECT_CALL_H

#include "python/groups/group_type.h"

typedef struct dlpy_object_call {
    PyObject_HEAD PyObject *group; /* NULL until set, like the next */
    PyObject *name;
    PyObject *refusal; /* the Message of a rank that must not take part, or None */
    int op;
    int rank;
    int root; /* rank in the group; -1: there is none */
    int size;
    int kind;
    char in_python; /* the blocks are moved by the public operations */
    /* Of a kept description: the arguments, of which ranks are -1 for None, and whether
     * the group was the default group. */
    int64_t ranks[2];
    PyObject *safe; /* None, True or False, borrowed */
    bool is_default;
} dlpy_object_call;

/* Returns the description that a group keeps of a call with these four arguments: the
 * group, the rank, the rank in the group, and safe.  A new reference, or NULL without
 * an exception. */
dlpy_object_call *dlpy_object_call_find(dlpy_state *state, int op,
                                        PyObject *const *args);

/* Its method keep(), with these arguments.  The description comes first, and one for
 * the same arguments, or the last of too many, is dropped. */
PyObject *dlpy_object_call_keep(PyObject *self, PyTypeObject *type,
                                PyObject *const *args, Py_ssize_t count,
                                PyObject *keywords);

/* Its method exchange(); `message` may be NULL. */
PyObject *dlpy_object_call_exchange(dlpy_state *state, dlpy_object_call *call,
                                    PyObject *value, Py_ssize_t count,
                                    PyObject *message);

/* By number. */
enum {
    DLPY_BROADCAST_OBJECTS,
    DLPY_ALL_GATHER_OBJECTS,
    DLPY_GATHER_OBJECTS,
    DLPY_SCATTER_OBJECTS,
    DLPY_SEND_OBJECTS,
    DLPY_RECV_OBJECTS,
};

/* Adds _kept_call() and _forget_calls(), and the functions on objects. */

#endif
