/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The Python objects around stores.  Each owns one dl_store; all methods are Store's.
 *
 * A store written in Python (a subclass of Store itself) owns a dl_store that calls back
 * into it and only borrows it, so the two make no cycle that the garbage collector cannot
 * see.  Python objects that use such a store (PrefixStore) hold it by an ordinary
 * reference beside the borrowing dl_store; the C core is given dlpy_store_share(). */
#ifndef DISTLITE_PYTHON_STORE_TYPES_H
#define DISTLITE_PYTHON_STORE_TYPES_H

#include "python/state.h"
#include "store/store.h"

typedef struct dlpy_store {
    PyObject_HEAD dl_store
        *store;      /* NULL until __init__ has run, then fixed until freed */
    PyObject *below; /* PrefixStore: what it was made over */
    PyObject *weak_references;
} dlpy_store;

/* Whether `object` is any Store. */
bool dlpy_store_check(const dlpy_state *state, PyObject *object);

/* The core's store, borrowed for as long as `self` lives.  NULL with RuntimeError when a
 * subclass did not call __init__. */
dl_store *dlpy_store_core(PyObject *self);

/* A new reference for the core to keep: whatever is written in Python below it stays
 * alive as long.  NULL with an exception. */
dl_store *dlpy_store_share(const dlpy_state *state, PyObject *self);

/* A new object of `type` around `store`, which is taken. */
PyObject *dlpy_store_wrap(PyTypeObject *type, dl_store *store);

/* For tp_init: gives `self` its store, which is taken.  -1 when it has one already. */
int dlpy_store_adopt(PyObject *self, dl_store *store);
int dlpy_store_refuse_second_init(PyObject *self);

/* The repr of an object that has no store yet, for debuggers and tracebacks. */
PyObject *dlpy_store_describe_unmade(PyObject *self);

/* tp_new of the kinds whose __init__ makes the store. */
PyObject *dlpy_store_alloc(PyTypeObject *type, PyObject *args, PyObject *keywords);

/* Called by dlpy_add_store_types(). */
int dlpy_add_tcp_store_type(PyObject *module);

#endif
