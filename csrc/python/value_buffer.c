/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/value_buffer.h"

#include <stddef.h>

/* The offset of the contents in a bytes object. */
#define BYTES_OFFSET offsetof(PyBytesObject, ob_sval)

static PyObject *
bytes_around(void *data)
{
    return (PyObject *)(void *)((char *)data - BYTES_OFFSET);
}

/* Allocates a new object rather than resizing in place, where the interpreter would
 * free the old object on failure. */
static void *
resize_bytes(void *data, size_t kept, size_t capacity)
{
    /* The core calls this without the GIL, while it receives a reply. */
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

dl_buffer
dlpy_value_buffer(void)
{
    return (dl_buffer){.large = resize_bytes};
}

/* Shrinking frees the rest; it happens only if a value arrived in pieces. */
PyObject *
dlpy_object_from_buffer(dl_buffer *buffer)
{
    PyObject *bytes;

    if (buffer->is_large) {
        bytes = bytes_around(buffer->data);
        size_t size = buffer->size;
        bool is_exact = size == buffer->capacity;
        *buffer = dlpy_value_buffer();
        if (!is_exact) {
            _PyBytes_Resize(&bytes, (Py_ssize_t)size);
        }
        return bytes;
    }
    bytes =
        PyBytes_FromStringAndSize((const char *)buffer->data, (Py_ssize_t)buffer->size);
    dl_buffer_fini(buffer);
    return bytes;
}
