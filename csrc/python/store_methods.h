/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The methods of Store, by theme, and the table that names and documents them. */
#ifndef DISTLITE_PYTHON_STORE_METHODS_H
#define DISTLITE_PYTHON_STORE_METHODS_H

#include "python/arguments.h"
#include "python/convert.h"
#include "python/python_store.h"
#include "python/store_types.h"

/* METH_METHOD | METH_FASTCALL | METH_KEYWORDS. */
#define DLPY_METHOD(name)                                        \
    PyObject *name(PyObject *self, PyTypeObject *defining_class, \
                   PyObject *const *args, Py_ssize_t count, PyObject *keywords)

/* store_methods_values.c */
DLPY_METHOD(dlpy_store_set);
DLPY_METHOD(dlpy_store_get);
DLPY_METHOD(dlpy_store_add);
DLPY_METHOD(dlpy_store_compare_set);
DLPY_METHOD(dlpy_store_delete_key);
DLPY_METHOD(dlpy_store_append);
DLPY_METHOD(dlpy_store_queue_push);
DLPY_METHOD(dlpy_store_queue_pop);

/* store_methods_keys.c */
DLPY_METHOD(dlpy_store_check_keys);
DLPY_METHOD(dlpy_store_wait_keys);
DLPY_METHOD(dlpy_store_num_keys);
DLPY_METHOD(dlpy_store_list_keys);
DLPY_METHOD(dlpy_store_multi_get);
DLPY_METHOD(dlpy_store_multi_set);

/* store_methods_object.c: numbers, and the store itself */
DLPY_METHOD(dlpy_store_queue_len);
DLPY_METHOD(dlpy_store_barrier);
DLPY_METHOD(dlpy_store_has_extended_api);
DLPY_METHOD(dlpy_store_clone);
DLPY_METHOD(dlpy_store_set_timeout);
DLPY_METHOD(dlpy_store_close);
DLPY_METHOD(dlpy_store_lock);
DLPY_METHOD(dlpy_store_enter);
DLPY_METHOD(dlpy_store_exit);
DLPY_METHOD(dlpy_store_reduce);
PyObject *dlpy_store_get_timeout(PyObject *self, void *closure);

/* store_mapping.c: store[key] and the like */
PyObject *dlpy_store_subscript(PyObject *self, PyObject *key);
int dlpy_store_set_subscript(PyObject *self, PyObject *key, PyObject *value);
int dlpy_store_contains(PyObject *self, PyObject *key);
PyObject *dlpy_store_iterate(PyObject *self);

extern PyMethodDef dlpy_store_method_table[];

/* What every method begins with: takes the arguments and says which store to call.
 * Called on a store written in Python, a method of Store is either one that its class
 * does not override, or called by the override through super(); `base` is then the same
 * store without that override, so that nothing calls itself for ever. */
typedef struct dlpy_store_call {
    dl_store *store;
    dl_deadline deadline; /* the store's own timeout from now */
    dlpy_python_store base;
} dlpy_store_call;

/* `method` is the offset of the method's entry in dl_store_ops. */
int dlpy_store_begin(PyObject *self, size_t method, dlpy_store_call *call);

/* None, or the error raised. */
PyObject *dlpy_store_end(PyTypeObject *defining_class, dl_status status);

#endif
