/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of the extension module: its exceptions, types and default group.  They are
 * kept here rather than in static variables; only caches of other packages' objects
 * (dlpack.c, tensor_arg.c, torch_tensor.c, events.c) are in statics.  Code gets
 * the state from the module, from the class that defines the running method, or, in
 * slots, which do not receive that class, from any type derived from one of ours. */
#ifndef DISTLITE_PYTHON_MODULE_STATE_H
#define DISTLITE_PYTHON_MODULE_STATE_H

#include "python/module/free_threading.h"

/* Strong references, except the last fields, from `site_cache` on: module.c visits all
 * that come before. */
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
    PyObject *default_group;  /* the process's; NULL before init_process_group; guarded
                                 by `lock` */
    PyObject *custom_handler; /* of groups written in Python; set once, like the next */
    PyObject *red_op_type;    /* the class of ReduceOp.SUM and the other members */
    PyObject *reduce_op_type; /* ReduceOp */
    PyObject *make_reducer;   /* of reduce_op.py; see reducer_type.h */
    PyObject *reducers;       /* dict: those that it has made */
    PyTypeObject *reducer_type;
    PyTypeObject *p2p_op_type;

    PyTypeObject *pack_type;
    PyTypeObject *work_type;
    PyObject *future_of_work; /* creates a Work's Future; set once, by futures.py */

    PyObject
        *pickle_dumps; /* set once, with the first call on objects, like the next */
    PyObject *pickle_loads;
    PyObject *pickle_words; /* the keywords of dumps */

    struct dlpy_site_cache *site_cache; /* call_site.c; holds references */

    /* Not a reference: works that have ended.  Never freed, as a work may end while the
     * interpreter is finalizing. */
    struct dlpy_completions *completions;

    dlpy_mutex lock;
} dlpy_state;

/* Not const: CPython links the definition into its own structures. */
extern PyModuleDef dlpy_module;

static inline dlpy_state *
dlpy_state_of_module(PyObject *module)
{
    return PyModule_GetState(module);
}

/* Returns the state for METH_METHOD functions; `defining_class` is one of our types
 * itself. */
dlpy_state *dlpy_state_of_class(PyTypeObject *defining_class);

/* Returns the state for slots; `type` is one of our types or a Python subclass.
 * Returns NULL with an exception set if it is neither. */
dlpy_state *dlpy_state_of_type(PyTypeObject *type);

/* Sets a field of those that are set once, as a module of the package is imported.  If
 * that is reloaded, the former object is kept: another thread may be using it.  Such
 * fields are read with DLPY_LOAD(). */
void dlpy_state_set(PyObject **field, PyObject *object);

#endif
