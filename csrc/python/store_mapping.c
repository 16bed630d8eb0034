/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/store_methods.h"

#include "python/errors.h"
#include "python/value_buffer.h"

/* Slots do not receive the defining class; only errors need the state. */
static PyObject *
raise_for(PyObject *self, dl_status status)
{
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));

    return state == NULL ? NULL : dlpy_raise_store(state, status);
}

/* Returns the store and converts the key, which the caller releases with
 * dlpy_bytes_release().  Returns NULL with an exception set on failure. */
static dl_store *
begin(PyObject *self, PyObject *object, dlpy_bytes *key)
{
    dl_store *store = dlpy_store_core(self);

    return store == NULL || dlpy_bytes_from(object, "key", key) < 0 ? NULL : store;
}

/* Unlike get(), does not wait: an absent key is a KeyError at once. */
PyObject *
dlpy_store_subscript(PyObject *self, PyObject *key)
{
    dlpy_bytes name;
    dl_buffer value = dlpy_value_buffer();
    PyObject *result = NULL;
    bool is_absent = false;
    dl_status status;
    dl_store *store = begin(self, key, &name);

    if (store == NULL) {
        return NULL;
    }
    /* A timeout of zero looks once; the round trip to a server has a grace period of
     * its own. */
    dl_deadline deadline = dl_deadline_after(0);
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_get(store, name.bytes, &value, deadline);
    if (status == DL_TIMEOUT) {
        /* Either the key is absent or the server does not answer; in the latter case
         * this check fails, too. */
        bool exists;
        deadline = dl_store_deadline(store);
        is_absent = dl_store_check(store, &name.bytes, 1, &exists, deadline) == DL_OK;
    }
    Py_END_ALLOW_THREADS
    if (status == DL_OK) {
        result = dlpy_object_from_buffer(&value);
    } else if (is_absent) {
        PyErr_SetObject(PyExc_KeyError, key);
    } else {
        raise_for(self, status);
    }
    dl_buffer_fini(&value);
    dlpy_bytes_release(&name);
    return result;
}

/* Same as set(). */
static int
set_item(PyObject *self, PyObject *key, PyObject *value)
{
    dlpy_bytes name;
    dlpy_bytes content;
    dl_status status;
    dl_store *store = begin(self, key, &name);

    if (store == NULL) {
        return -1;
    }
    if (dlpy_bytes_from(value, "value", &content) < 0) {
        dlpy_bytes_release(&name);
        return -1;
    }
    dl_deadline deadline = dl_store_deadline(store);
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_set(store, name.bytes, content.bytes, deadline);
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        raise_for(self, status);
    }
    dlpy_bytes_release(&content);
    dlpy_bytes_release(&name);
    return status == DL_OK ? 0 : -1;
}

/* Raises KeyError if there is no such key, unlike delete_key(), which returns False. */
static int
delete_item(PyObject *self, PyObject *key)
{
    dlpy_bytes name;
    bool existed = false;
    dl_status status;
    dl_store *store = begin(self, key, &name);

    if (store == NULL) {
        return -1;
    }
    dl_deadline deadline = dl_store_deadline(store);
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_delete_key(store, name.bytes, &existed, deadline);
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        raise_for(self, status);
    } else if (!existed) {
        PyErr_SetObject(PyExc_KeyError, key);
    }
    dlpy_bytes_release(&name);
    return status == DL_OK && existed ? 0 : -1;
}

int
dlpy_store_set_subscript(PyObject *self, PyObject *key, PyObject *value)
{
    return value == NULL ? delete_item(self, key) : set_item(self, key, value);
}

/* As for check(), a queue that is not empty exists. */
int
dlpy_store_contains(PyObject *self, PyObject *key)
{
    dlpy_bytes name;
    bool exists = false;
    dl_status status;
    dl_store *store = begin(self, key, &name);

    if (store == NULL) {
        return -1;
    }
    dl_deadline deadline = dl_store_deadline(store);
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_check(store, &name.bytes, 1, &exists, deadline);
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        raise_for(self, status);
    }
    dlpy_bytes_release(&name);
    return status == DL_OK ? exists : -1;
}

/* Iterates over a snapshot of the keys: changes during the loop do not affect it. */
PyObject *
dlpy_store_iterate(PyObject *self)
{
    /* Calls the method, so that a loop uses an override in Python. */
    PyObject *names = PyObject_CallMethod(self, "list_keys", NULL);

    if (names == NULL) {
        return NULL;
    }
    PyObject *iterator = PyObject_GetIter(names);
    Py_DECREF(names);
    return iterator;
}
