/* SPDX-License-Identifier: BSD-3-Clause
 *
 * store[key] and the related operators. */
#include "base/buffer.h"
#include "python/module/convert.h"
#include "python/module/errors.h"
#include "python/stores/store_request.h"
#include "python/stores/store_types.h"

/* Executes the request of an operator such as store[key], where `value` is NULL if it has
 * none.  On failure an exception is set, but not for a get that found no key in time. */
static dl_status
run_item(PyObject *self, dl_opcode op, PyObject *key, PyObject *value,
         dl_store_reply *reply)
{
    dl_store *store = dlpy_store_core(self);
    dl_store_request request = {.op = op};
    dlpy_bytes name;
    dlpy_bytes content = {0};

    if (store == NULL || dlpy_bytes_from(key, "key", &name) < 0) {
        return DL_INTERRUPTED;
    }
    if (value != NULL && dlpy_bytes_from(value, "value", &content) < 0) {
        dlpy_bytes_release(&name);
        return DL_INTERRUPTED;
    }
    if (op == DL_OP_CHECK) {
        request.keys = &name.bytes;
        request.count = 1;
    } else {
        request.key = name.bytes;
        request.value = content.bytes;
    }
    /* A get does not wait: a timeout of zero checks once; the round trip to a server has
     * a grace period of its own. */
    int64_t timeout = op == DL_OP_GET ? 0 : dl_store_timeout(store);
    dl_status status =
        dlpy_store_perform(Py_TYPE(self), store, &request, reply, timeout);
    if (status != DL_OK && !(op == DL_OP_GET && status == DL_TIMEOUT)) {
        /* Slots do not receive the defining class; only errors need the state. */
        const dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
        if (state != NULL) {
            dlpy_raise_store(state, status);
        }
    }
    dlpy_bytes_release(&content);
    dlpy_bytes_release(&name);
    return status;
}

/* Unlike get(), does not wait: an absent key is a KeyError at once. */
PyObject *
dlpy_store_subscript(PyObject *self, PyObject *key)
{
    dl_buffer value = dlpy_value_buffer();
    dl_store_reply reply = {.values = &value};
    PyObject *result = NULL;
    dl_status status = run_item(self, DL_OP_GET, key, NULL, &reply);

    if (status == DL_OK) {
        result = dlpy_value_take(&value);
    } else if (status == DL_TIMEOUT
               && run_item(self, DL_OP_CHECK, key, NULL, &reply) == DL_OK) {
        /* Otherwise the server does not answer, which the check has raised. */
        PyErr_SetObject(PyExc_KeyError, key);
    }
    dl_buffer_fini(&value);
    return result;
}

/* Raises KeyError if there is no such key, unlike delete_key(), which returns False. */
static int
delete_item(PyObject *self, PyObject *key)
{
    dl_store_reply reply = {0};

    if (run_item(self, DL_OP_DELETE_KEY, key, NULL, &reply) != DL_OK) {
        return -1;
    }
    if (reply.number == 0) {
        PyErr_SetObject(PyExc_KeyError, key);
        return -1;
    }
    return 0;
}

int
dlpy_store_set_subscript(PyObject *self, PyObject *key, PyObject *value)
{
    dl_store_reply reply = {0};

    if (value == NULL) {
        return delete_item(self, key);
    }
    return run_item(self, DL_OP_SET, key, value, &reply) == DL_OK ? 0 : -1;
}

/* As for check(), a queue that is not empty exists. */
int
dlpy_store_contains(PyObject *self, PyObject *key)
{
    dl_store_reply reply = {0};

    return run_item(self, DL_OP_CHECK, key, NULL, &reply) == DL_OK ? reply.number != 0
                                                                   : -1;
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
