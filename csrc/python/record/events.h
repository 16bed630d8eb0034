/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Events of operations, which last from the call to the operation's end: for the hooks
 * of register_hooks(), of which there are some or none, and for torch's profiler, which
 * sees operations on torch tensors with the shapes of their inputs, as with torch's own
 * backends.  The events are created in Python (hooks.py and profiler_events.py).  This
 * header has the check whether any are wanted, which is the only cost otherwise. */
#ifndef DISTLITE_PYTHON_RECORD_EVENTS_H
#define DISTLITE_PYTHON_RECORD_EVENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "python/arrays/tensor_arg.h"
#include "python/module/state.h"

/* Returns whether a profiler of torch is on in this thread: the function that says so,
 * which is searched for until torch is imported. */
extern bool (*dlpy_torch_profiler_check)(void);

/* Whether there are hooks. */
extern bool dlpy_has_hooks;

static inline bool
dlpy_events_are_on(void)
{
    return DLPY_LOAD(dlpy_has_hooks) || DLPY_LOAD(dlpy_torch_profiler_check)();
}

static inline bool
dlpy_events_want(const dlpy_tensor *tensor)
{
    return DLPY_LOAD(dlpy_has_hooks)
           || ((tensor->is_torch || tensor->view.pieces != NULL)
               && DLPY_LOAD(dlpy_torch_profiler_check)());
}

/* Creates the event of an operation that is about to begin.  `inputs` is an array, a
 * pack, a sequence of these, or None.  Returns NULL without an exception if there is no
 * event. */
PyObject *dlpy_event_begin(PyObject *group, const char *operation, PyObject *inputs);

/* Calls the hooks for a group that is about to be aborted, if there are any. */
void dlpy_event_of_abort(PyObject *group, const char *reason);

/* Takes ownership of `event`, which may be NULL, and returns `result`, which may be
 * NULL with an exception set.  If `is_of_work`, `result` is a Work that has taken the
 * event, which ends with its operation; otherwise the event ends now. */
PyObject *dlpy_event_end(PyObject *event, PyObject *result, bool is_of_work);

#endif
