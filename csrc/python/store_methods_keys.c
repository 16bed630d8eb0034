/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/store_methods.h"

#include <stddef.h>
#include <stdlib.h>

#include "python/value_buffer.h"

DLPY_METHOD(dlpy_store_check_keys)
{
    static const dlpy_store_method method = {
        .signature = {"check", 1, {"keys"}},
        .entry = offsetof(dl_store_ops, check),
    };
    dlpy_store_call call;
    dlpy_bytes_list keys;
    bool exist = false;
    dl_status status;

    if (dlpy_store_begin(self, &method, DLPY_PASSED, &call) < 0
        || dlpy_bytes_list_from(call.values[0], "keys", &keys) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_check(call.store, keys.bytes, keys.count, &exist, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_truth(defining_class, status, exist);
    dlpy_bytes_list_release(&keys);
    return answer;
}

DLPY_METHOD(dlpy_store_wait_keys)
{
    static const dlpy_store_method method = {
        .signature = {"wait", 1, {"keys", "timeout"}},
        .entry = offsetof(dl_store_ops, wait),
    };
    dlpy_store_call call;
    dlpy_bytes_list keys;
    int64_t timeout;
    dl_status status;

    if (dlpy_store_begin(self, &method, DLPY_PASSED, &call) < 0
        || dlpy_timeout_from(call.values[1], call.deadline.limit, &timeout) < 0
        || dlpy_bytes_list_from(call.values[0], "keys", &keys) < 0) {
        return NULL;
    }
    /* Iterating over the keys may have run Python for a while: the time starts here. */
    dl_deadline deadline = dl_deadline_after(timeout);
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_wait(call.store, keys.bytes, keys.count, deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = dlpy_answer_none(defining_class, status);
    dlpy_bytes_list_release(&keys);
    return answer;
}

DLPY_METHOD(dlpy_store_num_keys)
{
    static const dlpy_store_method method = {
        .signature = {"num_keys", 0, {NULL}},
        .entry = offsetof(dl_store_ops, num_keys),
    };
    dlpy_store_call call;
    int64_t number = 0;
    dl_status status;

    if (dlpy_store_begin(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_num_keys(call.store, &number, call.deadline);
    Py_END_ALLOW_THREADS
    return dlpy_answer_number(defining_class, status, number);
}

/* Names collected without the GIL: their bytes end to end, and where each ends. */
typedef struct name_list {
    dl_buffer text;
    dl_buffer ends;
} name_list;

/* Several hundred thousand names are two allocations that grow, not as many objects. */
static dl_status
collect_name(void *context, dl_bytes key)
{
    name_list *names = context;

    dl_buffer_put(&names->text, key);
    dl_buffer_put(&names->ends, (dl_bytes){(const uint8_t *)&names->text.size,
                                           sizeof names->text.size});
    DL_TRY(dl_buffer_check(&names->text));
    return dl_buffer_check(&names->ends);
}

/* Back under the GIL. */
static PyObject *
names_to_list(const name_list *names)
{
    size_t count = names->ends.size / sizeof(size_t);
    size_t start = 0;
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        size_t end;
        /* Copied out, since what the buffer holds is bytes to C, not numbers. */
        memcpy(&end, names->ends.data + i * sizeof end, sizeof end);
        PyObject *name =
            dlpy_text_from((dl_bytes){names->text.data + start, end - start});
        if (name == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, name);
        start = end;
    }
    return list;
}

DLPY_METHOD(dlpy_store_list_keys)
{
    static const dlpy_store_method method = {
        .signature = {"list_keys", 0, {NULL}},
        .entry = offsetof(dl_store_ops, list_keys),
    };
    dlpy_store_call call;
    name_list names = {0};
    dl_status status;

    if (dlpy_store_begin(self, &method, DLPY_PASSED, &call) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_list_keys(call.store, collect_name, &names, call.deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = status == DL_OK ? names_to_list(&names)
                                       : dlpy_answer_none(defining_class, status);
    dl_buffer_fini(&names.text);
    dl_buffer_fini(&names.ends);
    return answer;
}

/* Empties the buffers as it goes, so that large values are never there twice. */
static PyObject *
buffers_to_list(dl_buffer *buffers, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *value = dlpy_object_from_buffer(&buffers[i]);
        if (value == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, value);
    }
    return list;
}

/* On failure some of the values may be there already. */
static PyObject *
multi_get(PyTypeObject *defining_class, dlpy_store_call *call,
          const dlpy_bytes_list *keys)
{
    /* One more than needed, so that no keys are no special case: calloc(3) may answer a
     * size of 0 with NULL. */
    dl_buffer *found = calloc(keys->count + 1, sizeof *found);
    dl_status status;

    if (found == NULL) {
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < keys->count; i++) {
        found[i] = dlpy_value_buffer();
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_multi_get(call->store, keys->bytes, keys->count, found,
                                call->deadline);
    Py_END_ALLOW_THREADS
    PyObject *answer = status == DL_OK ? buffers_to_list(found, keys->count)
                                       : dlpy_answer_none(defining_class, status);
    for (size_t i = 0; i < keys->count; i++) {
        dl_buffer_fini(&found[i]);
    }
    free(found);
    return answer;
}

DLPY_METHOD(dlpy_store_multi_get)
{
    static const dlpy_store_method method = {
        .signature = {"multi_get", 1, {"keys"}},
        .entry = offsetof(dl_store_ops, multi_get),
    };
    dlpy_store_call call;
    dlpy_bytes_list keys;

    if (dlpy_store_begin(self, &method, DLPY_PASSED, &call) < 0
        || dlpy_bytes_list_from(call.values[0], "keys", &keys) < 0) {
        return NULL;
    }
    PyObject *answer = multi_get(defining_class, &call, &keys);
    dlpy_bytes_list_release(&keys);
    return answer;
}

/* Told apart here because the core takes one count for both. */
static PyObject *
multi_set(PyTypeObject *defining_class, dlpy_store_call *call,
          const dlpy_bytes_list *keys, const dlpy_bytes_list *values)
{
    dl_status status;

    if (keys->count != values->count) {
        dlpy_state *state = dlpy_state_of_class(defining_class);
        PyErr_SetString(state->store_error,
                        "multiSet keys and values vectors must be of same size");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_multi_set(call->store, keys->bytes, values->bytes, keys->count,
                                call->deadline);
    Py_END_ALLOW_THREADS
    return dlpy_answer_none(defining_class, status);
}

DLPY_METHOD(dlpy_store_multi_set)
{
    static const dlpy_store_method method = {
        .signature = {"multi_set", 2, {"keys", "values"}},
        .entry = offsetof(dl_store_ops, multi_set),
    };
    dlpy_store_call call;
    dlpy_bytes_list keys;
    dlpy_bytes_list values;
    PyObject *answer = NULL;

    if (dlpy_store_begin(self, &method, DLPY_PASSED, &call) < 0
        || dlpy_bytes_list_from(call.values[0], "keys", &keys) < 0) {
        return NULL;
    }
    if (dlpy_bytes_list_from(call.values[1], "values", &values) == 0) {
        answer = multi_set(defining_class, &call, &keys, &values);
        dlpy_bytes_list_release(&values);
    }
    dlpy_bytes_list_release(&keys);
    return answer;
}
