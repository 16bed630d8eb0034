/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the extension module remembers: its exceptions and types.  Nothing in this folder
 * keeps a PyObject in a static; whoever needs one of these asks here, starting from the
 * module, from the class that defines the running method, or, in slots that are not told
 * that class, from any type derived from one of ours. */
#ifndef DISTLITE_PYTHON_STATE_H
#define DISTLITE_PYTHON_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Strong references, but for the last; state.c visits and clears each of them. */
typedef struct dlpy_state {
    PyObject *dist_error;
    PyObject *backend_error;
    PyObject *network_error;
    PyObject *store_error;
    PyObject *queue_empty_error;

    PyTypeObject *store_type;
    PyTypeObject *hash_store_type;
    PyTypeObject *file_store_type;
    PyTypeObject *prefix_store_type;
    PyTypeObject *tcp_store_type;

    PyTypeObject *group_type;
    PyObject *default_group;  /* of the process; NULL before init_process_group */
    PyObject *custom_handler; /* of groups whose operations are in Python */
    PyObject *red_op_type;    /* of ReduceOp.SUM and its like */
    PyObject *reduce_op_type; /* ReduceOp */

    PyTypeObject *pack_type;
    PyTypeObject *work_type;
    PyObject *batch_pins;     /* list: the arrays of batches that are open, or NULL */
    PyObject *future_of_work; /* makes a Work's Future; futures.py */

    struct dlpy_site_cache *site_cache; /* recorded_site.c; holds references */

    /* No reference: works that have ended.  Never freed: a work may end while the
     * interpreter does. */
    struct dlpy_completions *completions;
} dlpy_state;

/* Not const: CPython links the definition into its own structures. */
extern PyModuleDef dlpy_module;

dlpy_state *dlpy_state_of_module(PyObject *module);

/* For METH_METHOD functions: `defining_class` is one of our types itself. */
dlpy_state *dlpy_state_of_class(PyTypeObject *defining_class);

/* For slots: `type` is one of our types or a subclass made in Python. */
dlpy_state *dlpy_state_of_type(PyTypeObject *type);

int dlpy_state_traverse(PyObject *module, visitproc visit, void *context);
int dlpy_state_clear(PyObject *module);
void dlpy_state_free(void *module);

/* Makes a type from its spec, adds it to the module under its last name and keeps it in
 * `*slot`, a field of the state.  `base` may be NULL. */
int dlpy_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base,
                  PyTypeObject **slot);

/* Parts of the module, each in its own file: 0, or -1 with an exception set. */
int dlpy_add_errors(PyObject *module);
int dlpy_add_store_types(PyObject *module);
int dlpy_add_group_types(PyObject *module);
int dlpy_add_work_type(PyObject *module);

#endif
