/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/store_methods.h"

#include "python/errors.h"
#include "python/signals.h"
#include "store/prefix_store.h"

DLPY_METHOD(dlpy_store_has_extended_api)
{
    static const dlpy_signature signature = {"has_extended_api", 0, {NULL}};
    dl_store *store = dlpy_store_core(self);

    (void)defining_class;
    if (store == NULL || dlpy_take_arguments(&signature, DLPY_PASSED, NULL) < 0) {
        return NULL;
    }
    /* Asks in Python, because only the method knows the answer of a store written in
     * Python. */
    PyObject *below = ((dlpy_store *)self)->below;
    if (below != NULL) {
        return PyObject_CallMethod(below, "has_extended_api", NULL);
    }
    return PyBool_FromLong(dl_store_has_extended_api(store));
}

/* A clone has the nearest built-in type: a Python subclass may require arguments that
 * only its own __init__ knows. */
static PyTypeObject *
nearest_type(const dlpy_state *state, PyObject *self)
{
    PyTypeObject *const types[] = {state->hash_store_type, state->file_store_type,
                                   state->tcp_store_type};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (PyObject_TypeCheck(self, types[i])) {
            return types[i];
        }
    }
    return state->store_type;
}

/* If the store's clone is the store itself, as for HashStore, returns the same Python
 * object. */
static PyObject *
clone_core(const dlpy_state *state, PyObject *self, dl_store *store)
{
    dl_store *clone = NULL;
    dl_deadline deadline = dl_store_deadline(store);
    dl_status status;

    Py_BEGIN_ALLOW_THREADS
    status = dl_store_clone(store, &clone, deadline);
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        return dlpy_raise_store(state, status);
    }
    /* Drops the core's new reference, since the object has one already.  It is not the
     * last one, so nothing is closed while the GIL is held. */
    if (clone == store) {
        dl_store_unref(clone);
        return Py_NewRef(self);
    }
    return dlpy_store_wrap(nearest_type(state, self), clone);
}

/* Clones in Python, so that the clone refers to the object that it is a view of. */
static PyObject *
clone_prefix_store(const dlpy_state *state, dlpy_store *self)
{
    dl_status status = dl_store_admit(self->store);

    if (status != DL_OK) {
        return dlpy_raise_store(state, status);
    }
    PyObject *below = PyObject_CallMethod(self->below, "clone", NULL);
    if (below == NULL) {
        return NULL;
    }
    PyObject *prefix = dlpy_text_from(dl_prefix_store_prefix(self->store));
    PyObject *clone =
        prefix == NULL ? NULL
                       : PyObject_CallFunctionObjArgs(
                             (PyObject *)state->prefix_store_type, prefix, below, NULL);
    Py_XDECREF(prefix);
    Py_DECREF(below);
    return clone;
}

/* A store written in Python has the clone() of its class, or none. */
DLPY_METHOD(dlpy_store_clone)
{
    static const dlpy_signature signature = {"clone", 0, {NULL}};
    dlpy_state *state = dlpy_state_of_class(defining_class);
    dl_store *store = dlpy_store_core(self);

    if (store == NULL || dlpy_take_arguments(&signature, DLPY_PASSED, NULL) < 0) {
        return NULL;
    }
    if (dlpy_python_store_check(store)) {
        return dlpy_raise_store(state, dl_store_fail_missing(store, "clone"));
    }
    if (((dlpy_store *)self)->below != NULL) {
        return clone_prefix_store(state, (dlpy_store *)self);
    }
    return clone_core(state, self, store);
}

PyObject *
dlpy_store_get_timeout(PyObject *self, void *closure)
{
    dl_store *store = dlpy_store_core(self);

    (void)closure;
    return store == NULL ? NULL : dlpy_timedelta_from(dl_store_timeout(store));
}

DLPY_METHOD(dlpy_store_set_timeout)
{
    static const dlpy_signature signature = {"set_timeout", 1, {"timeout"}};
    dl_store *store = dlpy_store_core(self);
    PyObject *values[1];
    int64_t timeout;

    (void)defining_class;
    if (store == NULL || dlpy_take_arguments(&signature, DLPY_PASSED, values) < 0) {
        return NULL;
    }
    if (values[0] == Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        "timeout must be a datetime.timedelta or seconds as a number; "
                        "to wait for ever, pass a negative one");
        return NULL;
    }
    if (dlpy_timeout_from(values[0], 0, &timeout) < 0) {
        return NULL;
    }
    dl_store_set_timeout(store, timeout);
    Py_RETURN_NONE;
}

/* Releases the GIL: closing has no deadline, but ends threads and may wait briefly for
 * a file's lock.  A signal must not interrupt it halfway. */
static PyObject *
close_store(PyObject *self)
{
    dl_store *store = dlpy_store_core(self);

    if (store == NULL) {
        return NULL;
    }
    /* Holds signals on this thread only; calls of other threads remain
     * interruptible. */
    dlpy_signals_hold();
    Py_BEGIN_ALLOW_THREADS
    dl_store_close(store);
    Py_END_ALLOW_THREADS
    dlpy_signals_release();
    Py_RETURN_NONE;
}

DLPY_METHOD(dlpy_store_close)
{
    static const dlpy_signature signature = {"close", 0, {NULL}};

    (void)defining_class;
    if (dlpy_take_arguments(&signature, DLPY_PASSED, NULL) < 0) {
        return NULL;
    }
    return close_store(self);
}

/* Fails if __init__ has not run. */
DLPY_METHOD(dlpy_store_enter)
{
    static const dlpy_signature signature = {"__enter__", 0, {NULL}};

    (void)defining_class;
    if (dlpy_take_arguments(&signature, DLPY_PASSED, NULL) < 0
        || dlpy_store_core(self) == NULL) {
        return NULL;
    }
    return Py_NewRef(self);
}

DLPY_METHOD(dlpy_store_exit)
{
    static const dlpy_signature signature = {
        "__exit__", 3, {"exception_type", "exception", "traceback"}};
    PyObject *values[3];

    (void)defining_class;
    if (dlpy_take_arguments(&signature, DLPY_PASSED, values) < 0) {
        return NULL;
    }
    /* Calls the method, as a Python subclass may override close(). */
    return PyObject_CallMethod(self, "close", NULL);
}

/* The lock is written in Python: its cost is that of its round trips.  The module is
 * imported here so that programs without locks do not load it. */
DLPY_METHOD(dlpy_store_lock)
{
    static const dlpy_signature signature = {"lock", 1, {"name", "timeout"}};
    PyObject *values[2];
    int64_t timeout;

    (void)defining_class;
    if (dlpy_take_arguments(&signature, DLPY_PASSED, values) < 0) {
        return NULL;
    }
    /* Checked here, at the caller's mistake, rather than when the lock is acquired. */
    if (!PyUnicode_Check(values[0])) {
        return PyErr_Format(PyExc_TypeError, "name must be str, not %s",
                            Py_TYPE(values[0])->tp_name);
    }
    if (dlpy_timeout_from(values[1], 0, &timeout) < 0) {
        return NULL;
    }
    PyObject *module = PyImport_ImportModule("distlite.store_lock");
    if (module == NULL) {
        return NULL;
    }
    PyObject *lock = PyObject_CallMethod(module, "StoreLock", "OOO", self, values[0],
                                         values[1] == NULL ? Py_None : values[1]);
    Py_DECREF(module);
    return lock;
}

/* Called by both pickle and copy. */
DLPY_METHOD(dlpy_store_reduce)
{
    static const dlpy_signature signature = {"__reduce__", 0, {NULL}};

    (void)defining_class;
    if (dlpy_take_arguments(&signature, DLPY_PASSED, NULL) == 0) {
        PyErr_Format(PyExc_TypeError,
                     "cannot pickle or copy a %s: it holds connections, threads or "
                     "locks of this process; make a store in the other process, or use "
                     "clone()",
                     Py_TYPE(self)->tp_name);
    }
    return NULL;
}
