/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>

#include "python/store_methods.h"
#include "python/value_buffer.h"

DLPY_METHOD(dlpy_store_queue_push)
{
    static const dlpy_store_method method = {
        .signature = {"queue_push", 2, {"key", "value"}},
        .entry = offsetof(dl_store_ops, queue_push),
    };
    dlpy_store_call call;
    dlpy_bytes value;
    dl_status status;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    if (dlpy_bytes_from(call.values[1], "value", &value) < 0) {
        dlpy_bytes_release(&call.key);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status =
        dl_store_queue_push(call.store, call.key.bytes, value.bytes, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_none(defining_class, status);
    dlpy_bytes_release(&value);
    dlpy_bytes_release(&call.key);
    return answer;
}

DLPY_METHOD(dlpy_store_queue_pop)
{
    static const dlpy_store_method method = {
        .signature = {"queue_pop", 1, {"key", "block"}},
        .entry = offsetof(dl_store_ops, queue_pop),
    };
    dlpy_store_call call;
    bool is_blocking = true;
    dl_buffer value = dlpy_value_buffer();
    dl_status status;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    if (call.values[1] != NULL
        && dlpy_bool_from(call.values[1], "block", &is_blocking) < 0) {
        dlpy_bytes_release(&call.key);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_queue_pop(call.store, call.key.bytes, is_blocking, &value,
                                call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_value(defining_class, status, &value);
    dlpy_bytes_release(&call.key);
    return answer;
}

DLPY_METHOD(dlpy_store_queue_len)
{
    static const dlpy_store_method method = {
        .signature = {"queue_len", 1, {"key"}},
        .entry = offsetof(dl_store_ops, queue_len),
    };
    dlpy_store_call call;
    int64_t length = 0;
    dl_status status;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_queue_len(call.store, call.key.bytes, &length, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_number(defining_class, status, length);
    dlpy_bytes_release(&call.key);
    return answer;
}

DLPY_METHOD(dlpy_store_barrier)
{
    static const dlpy_store_method method = {
        .signature = {"barrier", 2, {"key", "world_size", "timeout"}},
        .entry = offsetof(dl_store_ops, barrier),
    };
    dlpy_store_call call;
    int64_t world_size;
    int64_t timeout;
    dl_status status;

    if (dlpy_store_begin_key(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    if (dlpy_int64_from(call.values[1], &world_size) < 0
        || dlpy_timeout_from(call.values[2], call.deadline.limit, &timeout) < 0) {
        dlpy_bytes_release(&call.key);
        return NULL;
    }
    dl_deadline deadline = dl_deadline_after(timeout);
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_barrier(call.store, call.key.bytes, world_size, deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_none(defining_class, status);
    dlpy_bytes_release(&call.key);
    return answer;
}
