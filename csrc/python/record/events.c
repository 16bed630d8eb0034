/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/record/events.h"

#include "python/module/convert.h"

static bool look_for_torch(void);

bool (*dlpy_torch_profiler_check)(void) = look_for_torch;
bool dlpy_has_hooks;

static struct {
    PyObject *profiler_enabled; /* the function, set before ask_torch() is called */
} of_torch;

static bool
ask_torch(void)
{
    PyObject *answer = PyObject_CallNoArgs(DLPY_LOAD(of_torch.profiler_enabled));
    bool is_on = answer == Py_True;

    Py_XDECREF(answer);
    PyErr_Clear();
    return is_on;
}

/* Programs without torch call this in each barrier: their modules are searched once,
 * and again after every import. */
static bool
look_for_torch(void)
{
    static _Atomic(Py_ssize_t) modules_before;
    Py_ssize_t count = PyDict_Size(PyImport_GetModuleDict());

    if (atomic_load_explicit(&modules_before, memory_order_relaxed) == count) {
        return false;
    }
    atomic_store_explicit(&modules_before, count, memory_order_relaxed);
    PyObject *module = dlpy_imported_module("torch.autograd");
    PyObject *function =
        module == NULL ? NULL : PyObject_GetAttrString(module, "_profiler_enabled");
    Py_XDECREF(module);
    PyErr_Clear(); /* torch is being imported */
    if (function == NULL) {
        return false;
    }
    DLPY_STORE(of_torch.profiler_enabled, function);
    DLPY_STORE(dlpy_torch_profiler_check, ask_torch);
    return ask_torch();
}

/* A failing profiler or hook must not end the program's operation, so its exception is
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
    PyObject *module = PyImport_ImportModule(DLPY_LOAD(dlpy_has_hooks)
                                                 ? "distlite.hooks"
                                                 : "distlite.tools.profiler_events");
    PyObject *event = module == NULL ? NULL
                                     : PyObject_CallMethod(module, "begin", "OsO",
                                                           group, operation, inputs);

    Py_XDECREF(module);
    if (event == NULL) {
        report_failure(group);
    } else if (event == Py_None) {
        Py_CLEAR(event);
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
    if (event == NULL) {
        return result;
    }
    PyObject *error = dlpy_error_take();
    PyObject *done = is_of_work ? PyObject_CallMethod(event, "end_with", "O", result)
                                : PyObject_CallMethod(event, "end", "O",
                                                      error == NULL ? Py_None : error);
    if (done == NULL) {
        report_failure(event);
    }
    Py_XDECREF(done);
    Py_DECREF(event);
    dlpy_error_restore(error);
    return result;
}
