/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/store_methods.h"

#include <stddef.h>

#include "python/errors.h"
#include "python/value_buffer.h"

int
dlpy_store_begin(PyObject *self, size_t method, dlpy_store_call *call)
{
    dl_store *store = dlpy_store_core(self);

    if (store == NULL) {
        return -1;
    }
    call->store = dlpy_python_store_without(store, method, &call->base);
    call->deadline = dl_store_deadline(call->store);
    return 0;
}

PyObject *
dlpy_store_end(PyTypeObject *defining_class, dl_status status)
{
    if (status != DL_OK) {
        return dlpy_raise_store(dlpy_state_of_class(defining_class), status);
    }
    Py_RETURN_NONE;
}

typedef dl_status (*write_fn)(dl_store *, dl_bytes, dl_bytes, dl_deadline);

/* set, append and queue_push differ in what they call only. */
static PyObject *
write_value(PyTypeObject *defining_class, dlpy_store_call *call, PyObject **values,
            write_fn write)
{
    dlpy_bytes key;
    dlpy_bytes value;
    dl_status status;

    if (dlpy_bytes_from(values[0], "key", &key) < 0) {
        return NULL;
    }
    if (dlpy_bytes_from(values[1], "value", &value) < 0) {
        dlpy_bytes_release(&key);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = write(call->store, key.bytes, value.bytes, call->deadline);
    Py_END_ALLOW_THREADS
    PyObject *result = dlpy_store_end(defining_class, status);
    dlpy_bytes_release(&value);
    dlpy_bytes_release(&key);
    return result;
}

DLPY_METHOD(dlpy_store_set)
{
    static const dlpy_signature signature = {"set", 2, {"key", "value"}};
    PyObject *values[2];
    dlpy_store_call call;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_store_begin(self, offsetof(dl_store_ops, set), &call) < 0) {
        return NULL;
    }
    return write_value(defining_class, &call, values, dl_store_set);
}

DLPY_METHOD(dlpy_store_append)
{
    static const dlpy_signature signature = {"append", 2, {"key", "value"}};
    PyObject *values[2];
    dlpy_store_call call;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_store_begin(self, offsetof(dl_store_ops, append), &call) < 0) {
        return NULL;
    }
    return write_value(defining_class, &call, values, dl_store_append);
}

DLPY_METHOD(dlpy_store_queue_push)
{
    static const dlpy_signature signature = {"queue_push", 2, {"key", "value"}};
    PyObject *values[2];
    dlpy_store_call call;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_store_begin(self, offsetof(dl_store_ops, queue_push), &call) < 0) {
        return NULL;
    }
    return write_value(defining_class, &call, values, dl_store_queue_push);
}

/* The bytes that a call wrote into `value`, which is taken, or its error. */
static PyObject *
value_or_error(PyTypeObject *defining_class, dl_status status, dl_buffer *value)
{
    PyObject *result =
        status == DL_OK ? dlpy_object_from_buffer(value)
                        : dlpy_raise_store(dlpy_state_of_class(defining_class), status);

    dl_buffer_fini(value);
    return result;
}

DLPY_METHOD(dlpy_store_get)
{
    static const dlpy_signature signature = {"get", 1, {"key"}};
    PyObject *values[1];
    dlpy_store_call call;
    dlpy_bytes key;
    dl_buffer value = dlpy_value_buffer();
    dl_status status;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_store_begin(self, offsetof(dl_store_ops, get), &call) < 0
        || dlpy_bytes_from(values[0], "key", &key) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_get(call.store, key.bytes, &value, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *result = value_or_error(defining_class, status, &value);
    dlpy_bytes_release(&key);
    return result;
}

DLPY_METHOD(dlpy_store_queue_pop)
{
    static const dlpy_signature signature = {"queue_pop", 1, {"key", "block"}};
    PyObject *values[2];
    dlpy_store_call call;
    dlpy_bytes key;
    bool is_blocking = true;
    dl_buffer value = dlpy_value_buffer();
    dl_status status;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || (values[1] != NULL && dlpy_bool_from(values[1], "block", &is_blocking) < 0)
        || dlpy_store_begin(self, offsetof(dl_store_ops, queue_pop), &call) < 0
        || dlpy_bytes_from(values[0], "key", &key) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status =
        dl_store_queue_pop(call.store, key.bytes, is_blocking, &value, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *result = value_or_error(defining_class, status, &value);
    dlpy_bytes_release(&key);
    return result;
}

/* The core is called between the two halves of compare_set(). */
static int
take_compare_set(PyObject **values, dlpy_bytes *bytes)
{
    static const char *const names[] = {"key", "expected", "desired"};

    for (int i = 0; i < 3; i++) {
        if (dlpy_bytes_from(values[i], names[i], &bytes[i]) < 0) {
            while (i-- > 0) {
                dlpy_bytes_release(&bytes[i]);
            }
            return -1;
        }
    }
    return 0;
}

DLPY_METHOD(dlpy_store_compare_set)
{
    static const dlpy_signature signature = {
        "compare_set", 3, {"key", "expected", "desired"}};
    PyObject *values[3];
    dlpy_store_call call;
    dlpy_bytes bytes[3];
    dl_buffer held = dlpy_value_buffer();
    dl_status status;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_store_begin(self, offsetof(dl_store_ops, compare_set), &call) < 0
        || take_compare_set(values, bytes) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_compare_set(call.store, bytes[0].bytes, bytes[1].bytes,
                                  bytes[2].bytes, &held, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *result = value_or_error(defining_class, status, &held);
    for (int i = 0; i < 3; i++) {
        dlpy_bytes_release(&bytes[i]);
    }
    return result;
}

DLPY_METHOD(dlpy_store_add)
{
    static const dlpy_signature signature = {"add", 2, {"key", "amount"}};
    PyObject *values[2];
    dlpy_store_call call;
    dlpy_bytes key;
    int64_t delta;
    int64_t sum = 0;
    dl_status status;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_int64_from(values[1], &delta) < 0
        || dlpy_store_begin(self, offsetof(dl_store_ops, add), &call) < 0
        || dlpy_bytes_from(values[0], "key", &key) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_add(call.store, key.bytes, delta, &sum, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *result =
        status == DL_OK ? PyLong_FromLongLong(sum)
                        : dlpy_raise_store(dlpy_state_of_class(defining_class), status);
    dlpy_bytes_release(&key);
    return result;
}

DLPY_METHOD(dlpy_store_delete_key)
{
    static const dlpy_signature signature = {"delete_key", 1, {"key"}};
    PyObject *values[1];
    dlpy_store_call call;
    dlpy_bytes key;
    bool existed = false;
    dl_status status;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_store_begin(self, offsetof(dl_store_ops, delete_key), &call) < 0
        || dlpy_bytes_from(values[0], "key", &key) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_delete_key(call.store, key.bytes, &existed, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *result =
        status == DL_OK ? PyBool_FromLong(existed)
                        : dlpy_raise_store(dlpy_state_of_class(defining_class), status);
    dlpy_bytes_release(&key);
    return result;
}
