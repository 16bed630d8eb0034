/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The methods of Store: those that are not requests, and the table with the names and
 * docstrings of all of them. */
#ifndef DISTLITE_PYTHON_STORE_METHODS_H
#define DISTLITE_PYTHON_STORE_METHODS_H

#include "python/arguments.h"
#include "python/convert.h"
#include "python/python_store.h"
#include "python/store_types.h"

/* The parameters of a METH_METHOD | METH_FASTCALL | METH_KEYWORDS function, the only
 * calling convention that passes the defining class, from which the module's state is
 * found. */
#define DLPY_METHOD(name)                                        \
    PyObject *name(PyObject *self, PyTypeObject *defining_class, \
                   PyObject *const *args, Py_ssize_t count, PyObject *keywords)

/* The last three parameters of DLPY_METHOD as one value. */
#define DLPY_PASSED ((dlpy_call){args, count, keywords})

/* Defined in store_methods_object.c: methods of the store itself. */
DLPY_METHOD(dlpy_store_has_extended_api);
DLPY_METHOD(dlpy_store_clone);
DLPY_METHOD(dlpy_store_set_timeout);
DLPY_METHOD(dlpy_store_close);
DLPY_METHOD(dlpy_store_lock);
DLPY_METHOD(dlpy_store_enter);
DLPY_METHOD(dlpy_store_exit);
DLPY_METHOD(dlpy_store_reduce);
PyObject *dlpy_store_get_timeout(PyObject *self, void *closure);

/* Defined in store_mapping.c: store[key] and related operators. */
PyObject *dlpy_store_subscript(PyObject *self, PyObject *key);
int dlpy_store_set_subscript(PyObject *self, PyObject *key, PyObject *value);
int dlpy_store_contains(PyObject *self, PyObject *key);
PyObject *dlpy_store_iterate(PyObject *self);

extern PyMethodDef dlpy_store_method_table[];

#endif
