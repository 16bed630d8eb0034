/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Events of torch's profiler.  While a profiler is on, each operation on torch tensors
 * is an event with the shapes of its inputs that lasts from the call to the operation's
 * end, as with torch's own backends.  The events are created in Python
 * (profiler_events.py).  This header has the check whether any are wanted, which is the
 * only cost otherwise. */
#ifndef DISTLITE_PYTHON_RECORD_TORCH_PROFILER_H
#define DISTLITE_PYTHON_RECORD_TORCH_PROFILER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "python/arrays/tensor_arg.h"
#include "python/module/state.h"

/* Returns whether a profiler of torch is on in this thread: the function that says so,
 * which is searched for until torch is imported. */
extern bool (*dlpy_torch_profiler_look)(void);

static inline bool
dlpy_torch_profiler_is_on(void)
{
    return DLPY_LOAD(dlpy_torch_profiler_look)();
}

static inline bool
dlpy_torch_profiler_wants(const dlpy_tensor *tensor)
{
    return (tensor->is_torch || tensor->view.pieces != NULL)
           && dlpy_torch_profiler_is_on();
}

/* Creates the event of an operation that is about to begin.  `inputs` is an array, a
 * pack, a sequence of these, or None.  Returns NULL without an exception if there is no
 * event. */
PyObject *dlpy_torch_event_begin(PyObject *group, const char *operation,
                                 PyObject *inputs);

/* Takes ownership of `event`, which may be NULL, and returns `result`, which may be
 * NULL with an exception set.  If `result` is a Work, the event ends with its
 * operation; otherwise it ends now. */
PyObject *dlpy_torch_event_end(const dlpy_state *state, PyObject *event,
                               PyObject *result);

#endif
