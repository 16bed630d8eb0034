/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/record/torch_profiler.h"

#include <stddef.h>

#include "python/arrays/torch_tensor.h"
#include "python/work/work_type.h"

/* The first members of at::RecordFunctionTLS: a vector of the callbacks that observe a
 * thread's operations, such as the profiler's while it is on.  torch's functions that
 * query it take too long for a small operation. */
typedef struct observers {
    const void *begin;
    const void *end;
} observers;

typedef struct torch_functions {
    const observers *(*of_thread)(void); /* fixed per thread */
    bool (*are_any)(void);
} torch_functions;

static const dl_symbol symbols[] = {
    {.name = "_ZN2at24get_record_function_tls_Ev",
     .offset = offsetof(torch_functions, of_thread)},
    {.name = "_ZN2at23hasThreadLocalCallbacksEv",
     .offset = offsetof(torch_functions, are_any)},
};

static bool look_for_torch(void);

bool (*dlpy_torch_profiler_is_on)(void) = look_for_torch;

/* Guarded by the GIL; fixed once used. */
static torch_functions functions;

/* NULL until this thread has called of_thread(). */
static _Thread_local const observers *own_observers;

static bool
look_at_observers(void)
{
    if (own_observers == NULL) {
        own_observers = functions.of_thread();
    }
    return own_observers->begin != own_observers->end;
}

/* For a torch that does not export the functions, or whose struct differs. */
static bool
ask_in_python(void)
{
    PyObject *module =
        PyDict_GetItemString(PyImport_GetModuleDict(), "torch._C._autograd");
    PyObject *answer =
        module == NULL ? NULL : PyObject_CallMethod(module, "_profiler_enabled", NULL);
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
    static Py_ssize_t modules_before;
    PyObject *modules = PyImport_GetModuleDict();
    Py_ssize_t count = PyDict_GET_SIZE(modules);
    bool is_there = count != modules_before
                    && PyDict_GetItemString(modules, "torch._C._autograd") != NULL;

    modules_before = count;
    if (!is_there) {
        return false;
    }
    const dl_symbol_list list = {symbols, sizeof symbols / sizeof *symbols};
    if (dlpy_torch_bind(list, &functions)
        && look_at_observers() == functions.are_any()) {
        dlpy_torch_profiler_is_on = look_at_observers;
    } else {
        dlpy_torch_profiler_is_on = ask_in_python;
    }
    return dlpy_torch_profiler_is_on();
}

PyObject *
dlpy_torch_event_begin(PyObject *group, const char *operation, PyObject *inputs)
{
    PyObject *module = PyImport_ImportModule("distlite.tools.profiler_events");
    PyObject *event = module == NULL ? NULL
                                     : PyObject_CallMethod(module, "begin", "OsO",
                                                           group, operation, inputs);

    Py_XDECREF(module);
    if (event == NULL) {
        /* A failing profiler must not end the program's operation. */
        PyErr_WriteUnraisable(group);
    } else if (event == Py_None) {
        Py_CLEAR(event);
    }
    return event;
}

PyObject *
dlpy_torch_event_end(const dlpy_state *state, PyObject *event, PyObject *result)
{
    PyObject *type, *value, *trace;

    if (event == NULL) {
        return result;
    }
    PyErr_Fetch(&type, &value, &trace);
    bool is_work = result != NULL && PyObject_TypeCheck(result, state->work_type)
                   && dlpy_work_take_event(result, event);
    PyObject *done = is_work ? PyObject_CallMethod(event, "end_with", "O", result)
                             : PyObject_CallMethod(event, "end", NULL);
    if (done == NULL) {
        PyErr_WriteUnraisable(event);
    }
    Py_XDECREF(done);
    Py_DECREF(event);
    PyErr_Restore(type, value, trace);
    return result;
}
