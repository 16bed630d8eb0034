/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>

#include "python/store_methods.h"
#include "python/value_buffer.h"

typedef dl_status (*write_fn)(dl_store *, dl_bytes, dl_bytes, dl_deadline);

/* set and append differ in what they call only.  The value is read where it lies: the
 * caller's frame keeps the object, and a view keeps a bytearray from moving. */
static PyObject *
write_value(PyTypeObject *defining_class, dlpy_store_call *call, write_fn write)
{
    dlpy_bytes value;
    dl_status status;

    if (dlpy_bytes_from(call->values[1], "value", &value) < 0) {
        dlpy_bytes_release(&call->key);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = write(call->store, call->key.bytes, value.bytes, call->deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_none(defining_class, status);
    dlpy_bytes_release(&value);
    dlpy_bytes_release(&call->key);
    return answer;
}

DLPY_METHOD(dlpy_store_set)
{
    static const dlpy_store_method method = {
        .signature = {"set", 2, {"key", "value"}},
        .entry = offsetof(dl_store_ops, set),
    };
    dlpy_store_call call;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    return write_value(defining_class, &call, dl_store_set);
}

DLPY_METHOD(dlpy_store_append)
{
    static const dlpy_store_method method = {
        .signature = {"append", 2, {"key", "value"}},
        .entry = offsetof(dl_store_ops, append),
    };
    dlpy_store_call call;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    return write_value(defining_class, &call, dl_store_append);
}

DLPY_METHOD(dlpy_store_get)
{
    static const dlpy_store_method method = {
        .signature = {"get", 1, {"key"}},
        .entry = offsetof(dl_store_ops, get),
    };
    dlpy_store_call call;
    dl_buffer value = dlpy_value_buffer();
    dl_status status;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_get(call.store, call.key.bytes, &value, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_value(defining_class, status, &value);
    dlpy_bytes_release(&call.key);
    return answer;
}

DLPY_METHOD(dlpy_store_add)
{
    static const dlpy_store_method method = {
        .signature = {"add", 2, {"key", "amount"}},
        .entry = offsetof(dl_store_ops, add),
    };
    dlpy_store_call call;
    int64_t amount;
    int64_t sum = 0;
    dl_status status;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    if (dlpy_int64_from(call.values[1], &amount) < 0) {
        dlpy_bytes_release(&call.key);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_add(call.store, call.key.bytes, amount, &sum, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_number(defining_class, status, sum);
    dlpy_bytes_release(&call.key);
    return answer;
}

/* The two values after the key: both or, with an exception, neither. */
static int
take_values(PyObject *const *values, dlpy_bytes *expected, dlpy_bytes *desired)
{
    if (dlpy_bytes_from(values[1], "expected", expected) < 0) {
        return -1;
    }
    if (dlpy_bytes_from(values[2], "desired", desired) < 0) {
        dlpy_bytes_release(expected);
        return -1;
    }
    return 0;
}

DLPY_METHOD(dlpy_store_compare_set)
{
    static const dlpy_store_method method = {
        .signature = {"compare_set", 3, {"key", "expected", "desired"}},
        .entry = offsetof(dl_store_ops, compare_set),
    };
    dlpy_store_call call;
    dlpy_bytes expected;
    dlpy_bytes desired;
    dl_buffer held = dlpy_value_buffer();
    dl_status status;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    if (take_values(call.values, &expected, &desired) < 0) {
        dlpy_bytes_release(&call.key);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_compare_set(call.store, call.key.bytes, expected.bytes,
                                  desired.bytes, &held, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_value(defining_class, status, &held);
    dlpy_bytes_release(&desired);
    dlpy_bytes_release(&expected);
    dlpy_bytes_release(&call.key);
    return answer;
}

DLPY_METHOD(dlpy_store_delete_key)
{
    static const dlpy_store_method method = {
        .signature = {"delete_key", 1, {"key"}},
        .entry = offsetof(dl_store_ops, delete_key),
    };
    dlpy_store_call call;
    bool existed = false;
    dl_status status;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_delete_key(call.store, call.key.bytes, &existed, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_truth(defining_class, status, existed);
    dlpy_bytes_release(&call.key);
    return answer;
}
