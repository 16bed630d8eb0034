/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/python_call.h"

#include "python/convert.h"

/* Any thread may come here: those of Python with their state, others with one made for
 * the length of the call.  With an exception set already nothing may run: the core is
 * on its way out and only tidies up. */
dl_status
dlpy_call_begin(dl_store *store, dlpy_python_call *call)
{
    dlpy_python_store *self = (dlpy_python_store *)store;

    if (!Py_IsInitialized()) {
        return dl_fail(DL_CLOSED, "%s: the interpreter has ended", self->kind);
    }
    call->is_foreign = PyGILState_GetThisThreadState() == NULL;
    call->gil = PyGILState_Ensure();
    if (self->object == NULL || PyErr_Occurred()) {
        dl_status status = self->object == NULL ? DL_CLOSED : DL_INTERRUPTED;
        PyGILState_Release(call->gil);
        return dl_fail(status, "%s: the Python object %s", self->kind,
                       status == DL_CLOSED ? "is gone" : "has failed already");
    }
    /* The override may drop the last other reference to its own object. */
    call->object = Py_NewRef(self->object);
    return DL_OK;
}

/* The exception goes on to whoever called the core from Python.  Its text goes along for
 * those that Python cannot reach: a thread of the core, a group that repeats its cause. */
static dl_status
exception_status(const dlpy_python_call *call)
{
    PyObject *type;
    PyObject *value;
    PyObject *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyObject *text = value == NULL ? NULL : PyObject_Str(value);
    const char *message = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    dl_status status =
        dl_fail(DL_INTERRUPTED, "%s: %s", ((PyTypeObject *)type)->tp_name,
                message == NULL ? "no text" : message);
    Py_XDECREF(text);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    /* This thread's state, and the exception in it, ends with the call: nobody in
     * Python would ever see it. */
    if (call->is_foreign) {
        PyErr_Clear();
    }
    return status;
}

dl_status
dlpy_call_end(dlpy_python_call *call, bool succeeded)
{
    dl_status status = succeeded ? DL_OK : exception_status(call);

    Py_DECREF(call->object);
    PyGILState_Release(call->gil);
    return status;
}

/* str is taken as well, as set() takes it. */
bool
dlpy_call_store_bytes(PyObject *object, dl_buffer *value)
{
    dlpy_bytes bytes;

    if (dlpy_bytes_from(object, "a value returned by a store", &bytes) < 0) {
        return false;
    }
    dl_status status = dl_buffer_set(value, bytes.bytes);
    dlpy_bytes_release(&bytes);
    if (status != DL_OK) {
        PyErr_NoMemory();
    }
    return status == DL_OK;
}

dl_status
dlpy_call_end_bytes(dlpy_python_call *call, PyObject *result, dl_buffer *value)
{
    bool succeeded = result != NULL && dlpy_call_store_bytes(result, value);

    Py_XDECREF(result);
    return dlpy_call_end(call, succeeded);
}

dl_status
dlpy_call_end_number(dlpy_python_call *call, PyObject *result, int64_t *number)
{
    bool succeeded = result != NULL && dlpy_int64_from(result, number) == 0;

    Py_XDECREF(result);
    return dlpy_call_end(call, succeeded);
}

dl_status
dlpy_call_end_truth(dlpy_python_call *call, PyObject *result, bool *truth)
{
    int is_true = result == NULL ? -1 : PyObject_IsTrue(result);

    Py_XDECREF(result);
    if (is_true >= 0) {
        *truth = is_true;
    }
    return dlpy_call_end(call, is_true >= 0);
}

dl_status
dlpy_call_end_nothing(dlpy_python_call *call, PyObject *result)
{
    bool succeeded = result != NULL;

    Py_XDECREF(result);
    return dlpy_call_end(call, succeeded);
}
