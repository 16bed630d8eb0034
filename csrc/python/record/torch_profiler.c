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

bool (*dlpy_torch_profiler_look)(void) = look_for_torch;

/* Fixed once dlpy_torch_profiler_look is look_at_observers(). */
static torch_functions functions;
static dlpy_mutex lock;

/* NULL until this thread has called of_thread(). */
static _Thread_local const observers *own_observers;

static bool
look_by(const torch_functions *used)
{
    if (own_observers == NULL) {
        own_observers = used->of_thread();
    }
    return own_observers->begin != own_observers->end;
}

static bool
look_at_observers(void)
{
    return look_by(&functions);
}

/* For a torch that does not export the functions, or whose struct differs. */
static bool
ask_in_python(void)
{
    PyObject *module = dlpy_imported_module("torch._C._autograd");
    PyObject *answer =
        module == NULL ? NULL : PyObject_CallMethod(module, "_profiler_enabled", NULL);
    bool is_on = answer == Py_True;

    Py_XDECREF(answer);
    Py_XDECREF(module);
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
    PyObject *module = dlpy_imported_module("torch._C._autograd");
    if (module == NULL) {
        return false;
    }
    Py_DECREF(module);
    const dl_symbol_list list = {symbols, sizeof symbols / sizeof *symbols};
    torch_functions found = {0};
    bool is_usable =
        dlpy_torch_bind(list, &found) && look_by(&found) == found.are_any();
    dlpy_mutex_lock(&lock);
    if (DLPY_LOAD(dlpy_torch_profiler_look) == look_for_torch) {
        functions = found;
        DLPY_STORE(dlpy_torch_profiler_look,
                   is_usable ? look_at_observers : ask_in_python);
    }
    dlpy_mutex_unlock(&lock);
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
