/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The methods of Store, by theme, and the table that names and documents them. */
#ifndef DISTLITE_PYTHON_STORE_METHODS_H
#define DISTLITE_PYTHON_STORE_METHODS_H

#include "python/arguments.h"
#include "python/convert.h"
#include "python/python_store.h"
#include "python/store_types.h"

/* METH_METHOD | METH_FASTCALL | METH_KEYWORDS: the one form of call that tells the
 * defining class, from which the module's state is found. */
#define DLPY_METHOD(name)                                        \
    PyObject *name(PyObject *self, PyTypeObject *defining_class, \
                   PyObject *const *args, Py_ssize_t count, PyObject *keywords)

/* Its last three parameters as one. */
#define DLPY_PASSED ((dlpy_call){args, count, keywords})

/* store_methods_values.c: one key */
DLPY_METHOD(dlpy_store_set);
DLPY_METHOD(dlpy_store_get);
DLPY_METHOD(dlpy_store_add);
DLPY_METHOD(dlpy_store_compare_set);
DLPY_METHOD(dlpy_store_delete_key);
DLPY_METHOD(dlpy_store_append);

/* store_methods_keys.c: several keys, or all */
DLPY_METHOD(dlpy_store_check_keys);
DLPY_METHOD(dlpy_store_wait_keys);
DLPY_METHOD(dlpy_store_num_keys);
DLPY_METHOD(dlpy_store_list_keys);
DLPY_METHOD(dlpy_store_multi_get);
DLPY_METHOD(dlpy_store_multi_set);

/* store_methods_queues.c: queues, and the barrier */
DLPY_METHOD(dlpy_store_queue_push);
DLPY_METHOD(dlpy_store_queue_pop);
DLPY_METHOD(dlpy_store_queue_len);
DLPY_METHOD(dlpy_store_barrier);

/* store_methods_object.c: the store itself */
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

/* What the methods share: arguments are taken, the store is found, the core is called
 * without the GIL, and what it answered becomes an object. */

#define DLPY_STORE_ARGUMENTS 3

typedef struct dlpy_store_method {
    dlpy_signature signature;
    size_t entry; /* offset of its entry in dl_store_ops */
} dlpy_store_method;

/* Called on a store written in Python, a method of Store is either one that its class
 * does not override, or called by the override through super(); `base` is then the same
 * store without that override, so that nothing calls itself for ever. */
typedef struct dlpy_store_call {
    PyObject *values[DLPY_STORE_ARGUMENTS];
    dl_store *store;
    dl_deadline deadline; /* the store's own timeout from now */
    dlpy_bytes key;       /* begin_key only */
    dlpy_python_store base;
} dlpy_store_call;

/* Nothing to end. */
int dlpy_store_begin(PyObject *self, const dlpy_store_method *method, dlpy_call passed,
                     dlpy_store_call *call);

/* The first argument is a key: dlpy_bytes_release(&call->key) ends it. */
int dlpy_store_begin_key(PyObject *self, const dlpy_store_method *method,
                         dlpy_call passed, dlpy_store_call *call);

/* The answer, or the error raised.  A failed status leaves the thread's error text to be
 * read, so these come right after the core's call, before anything is released. */
PyObject *dlpy_answer_none(PyTypeObject *defining_class, dl_status status);
PyObject *dlpy_answer_truth(PyTypeObject *defining_class, dl_status status, bool truth);
PyObject *dlpy_answer_number(PyTypeObject *defining_class, dl_status status,
                             int64_t number);
/* Takes what is in `value`. */
PyObject *dlpy_answer_value(PyTypeObject *defining_class, dl_status status,
                            dl_buffer *value);

#endif
