/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/stores/store_request.h"

#include <stddef.h>

#include "base/text.h"
#include "python/module/convert.h"
#include "python/module/gil.h"
#include "python/record/call_site.h"

/* Leaves room for what follows a key in the text of a wait. */
#define LONGEST_KEY 72

/* Writes a request such as "store.wait('first' and 2 more)". */
static void
describe_request(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    const dl_store_request *request = subject;
    dl_bytes key = request->count > 0 ? request->keys[0] : request->key;
    size_t size = 0;

    dl_text_append(text, DL_WAIT_ROW_TEXT, &size, "store.%s(",
                   dl_request_kinds[request->op].name);
    if (key.size > 0) {
        size_t shown = key.size < LONGEST_KEY ? key.size : LONGEST_KEY;
        dl_text_append(text, DL_WAIT_ROW_TEXT, &size, "'");
        dl_text_append_escaped(text, LONGEST_KEY, &size, (const char *)key.data, shown);
        dl_text_append(text, DL_WAIT_ROW_TEXT, &size, "'");
    }
    if (request->count > 1) {
        dl_text_append(text, DL_WAIT_ROW_TEXT, &size, " and %zu more",
                       request->count - 1);
    }
    dl_text_append(text, DL_WAIT_ROW_TEXT, &size, ")");
}

/* Of a brief store only threads of this process keep a request waiting, and noting that
 * would take a tenth of a request. */
static void
enter_request(PyTypeObject *type, dl_store *store, dl_waiting *waiting,
              const dl_store_request *request, dl_deadline deadline)
{
    *waiting = (dl_waiting){0};
    if (!dl_store_is_brief(store)) {
        dlpy_waiting_enter(dlpy_state_of_type(type), waiting, describe_request, request,
                           deadline);
    }
}

/* A brief store waits for keys only: without them the time need not be read. */
dl_status
dlpy_store_perform(PyTypeObject *type, dl_store *store, const dl_store_request *request,
                   dl_store_reply *reply, int64_t timeout)
{
    dl_waiting waiting;
    dlpy_gil gil;

    bool is_brief = dl_store_is_brief(store);
    bool may_wait = dl_request_kinds[request->op].may_wait;
    dl_deadline deadline = dl_deadline_after(is_brief && !may_wait ? -1 : timeout);
    enter_request(type, store, &waiting, request, deadline);
    dlpy_gil_leave(&gil, is_brief);
    dl_status status = dl_store_execute(store, request, reply, deadline);
    dl_waiting_end(&waiting);
    return dlpy_gil_return(&gil, status);
}

/* The offset of the contents in a bytes object. */
#define BYTES_OFFSET offsetof(PyBytesObject, ob_sval)

static PyObject *
bytes_around(void *data)
{
    return (PyObject *)(void *)((char *)data - BYTES_OFFSET);
}

/* Allocates a new object rather than resizing in place, where the interpreter would
 * free the old object on failure. */
void *
dlpy_value_resize(void *data, size_t kept, size_t capacity)
{
    /* The core calls this without the GIL, while it receives a reply, on the thread of
     * Python that has called it.  At the interpreter's end that thread stops here, as
     * it would when the call returns; the main thread, which ends the interpreter, goes
     * on, so this does not ask dlpy_may_enter(). */
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *bytes = NULL;

    if (capacity > 0) {
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)capacity);
        /* The core reports the lack of memory by its status; an exception left set here
         * would surface in unrelated Python code. */
        if (bytes == NULL) {
            PyErr_Clear();
        } else if (kept > 0) {
            memcpy(PyBytes_AS_STRING(bytes), data, kept);
        }
    }
    if (data != NULL && (bytes != NULL || capacity == 0)) {
        Py_DECREF(bytes_around(data));
    }
    PyGILState_Release(gil);
    return bytes == NULL ? NULL : PyBytes_AS_STRING(bytes);
}

/* Shrinking frees the rest; it happens only if a value arrived in pieces. */
PyObject *
dlpy_value_take(dl_buffer *buffer)
{
    if (!buffer->is_large) {
        return PyBytes_FromStringAndSize((const char *)buffer->data,
                                         (Py_ssize_t)buffer->size);
    }
    PyObject *bytes = bytes_around(buffer->data);
    size_t size = buffer->size;
    bool is_exact = size == buffer->capacity;
    *buffer = dlpy_value_buffer();
    if (!is_exact) {
        _PyBytes_Resize(&bytes, (Py_ssize_t)size);
    }
    return bytes;
}

/* Empties the buffers one by one, so that large values never exist twice. */
static PyObject *
values_to_list(dl_buffer *values, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *value = dlpy_value_take(&values[i]);
        dl_buffer_fini(&values[i]);
        if (value == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, value);
    }
    return list;
}

static PyObject *
names_to_list(const dl_store_reply *reply)
{
    dl_reader names = dl_reader_of(dl_buffer_bytes(reply->values));
    PyObject *list = PyList_New((Py_ssize_t)reply->number);
    dl_bytes bytes;

    for (Py_ssize_t i = 0; list != NULL && dl_take_bytes(&names, SIZE_MAX, &bytes) == 1;
         i++) {
        PyObject *name = dlpy_text_from(bytes);
        if (name == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, name);
    }
    return list;
}

/* Returns the dict in which the fact `*name` belongs, borrowed: that of its group,
 * whose name is removed from the front of `*name`, or `facts` itself. */
static PyObject *
group_of(PyObject *facts, dl_bytes *name)
{
    const uint8_t *slash = memchr(name->data, '/', name->size);

    if (slash == NULL) {
        return facts;
    }
    size_t size = (size_t)(slash - name->data);
    PyObject *key = dlpy_text_from((dl_bytes){name->data, size});
    PyObject *empty = key == NULL ? NULL : PyDict_New();
    PyObject *group = empty == NULL ? NULL : PyDict_SetDefault(facts, key, empty);

    Py_XDECREF(key);
    Py_XDECREF(empty);
    *name = (dl_bytes){slash + 1, name->size - size - 1};
    if (group != NULL && !PyDict_Check(group)) {
        PyErr_SetString(PyExc_ValueError, "the server's statistics are malformed");
        return NULL;
    }
    return group;
}

static PyObject *
fact_from(dl_bytes value)
{
    PyObject *text = dlpy_text_from(value);
    bool is_number = true;

    for (size_t i = 0; i < value.size; i++) {
        is_number = is_number && value.data[i] >= '0' && value.data[i] <= '9';
    }
    if (text == NULL || !is_number || value.size > 20) {
        return text;
    }
    PyObject *number = PyLong_FromUnicodeObject(text, 10);
    Py_DECREF(text);
    return number;
}

static PyObject *
stats_to_dict(dl_bytes text)
{
    PyObject *facts = PyDict_New();
    dl_bytes name, value;
    int taken = 1;

    while (facts != NULL && (taken = dl_reply_take_fact(&text, &name, &value)) == 1) {
        PyObject *group = group_of(facts, &name);
        PyObject *key = group == NULL ? NULL : dlpy_text_from(name);
        PyObject *fact = key == NULL ? NULL : fact_from(value);
        if (fact == NULL || PyDict_SetItem(group, key, fact) < 0) {
            Py_CLEAR(facts);
        }
        Py_XDECREF(key);
        Py_XDECREF(fact);
    }
    if (taken < 0) {
        Py_CLEAR(facts);
        PyErr_SetString(PyExc_ValueError, "the server's statistics are malformed");
    }
    return facts;
}

PyObject *
dlpy_store_result(const dl_store_request *request, dl_store_reply *reply)
{
    switch (dl_request_kinds[request->op].reply) {
    case DL_REPLY_ALL_EXIST:
    case DL_REPLY_EXISTED:
        return PyBool_FromLong(reply->number != 0);
    case DL_REPLY_NUMBER:
        return PyLong_FromLongLong(reply->number);
    case DL_REPLY_VALUE:
    case DL_REPLY_ITEM:
        return dlpy_value_take(reply->values);
    case DL_REPLY_VALUES:
        return values_to_list(reply->values, request->count);
    case DL_REPLY_NAMES:
        return names_to_list(reply);
    case DL_REPLY_STATS:
        return stats_to_dict(dl_buffer_bytes(reply->values));
    default:
        return Py_NewRef(Py_None);
    }
}
