/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/record/events.h"

bool dlpy_has_hooks;

/* A failing hook must not end the program's operation, so its exception is
 * printed.  Ctrl-C that comes in it is raised by the operation, or right after it. */
static void
report_failure(PyObject *where)
{
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        PyErr_Clear();
        PyErr_SetInterrupt();
    } else {
        PyErr_WriteUnraisable(where);
    }
}

PyObject *
dlpy_event_begin(PyObject *group, const char *operation, PyObject *inputs)
{
    PyObject *module = PyImport_ImportModule("distlite.hooks");
    PyObject *event = module == NULL ? NULL
                                     : PyObject_CallMethod(module, "begin", "OsO",
                                                           group, operation, inputs);

    Py_XDECREF(module);
    if (event == NULL) {
        report_failure(group);
    }
    return event;
}

void
dlpy_event_of_abort(PyObject *group, const char *reason)
{
    if (!DLPY_LOAD(dlpy_has_hooks)) {
        return;
    }
    PyObject *module = PyImport_ImportModule("distlite.hooks");
    PyObject *done =
        module == NULL ? NULL
                       : PyObject_CallMethod(module, "call_abort", "Os", group, reason);

    if (done == NULL) {
        report_failure(group);
    }
    Py_XDECREF(done);
    Py_XDECREF(module);
}

PyObject *
dlpy_event_end(PyObject *event, PyObject *result, bool is_of_work)
{
    PyObject *type, *value, *trace;

    if (event == NULL) {
        return result;
    }
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *done = is_of_work ? PyObject_CallMethod(event, "end_with", "O", result)
                                : PyObject_CallMethod(event, "end", "O",
                                                      value == NULL ? Py_None : value);
    if (done == NULL) {
        report_failure(event);
    }
    Py_XDECREF(done);
    Py_DECREF(event);
    PyErr_Restore(type, value, trace);
    return result;
}
