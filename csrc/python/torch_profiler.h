/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Events of torch's profiler.  While one is on, each operation on tensors of torch's is an
 * event with the shapes of its inputs, from its call to its end, as one of torch's own
 * backends would make it.  The events themselves are made in Python
 * (profiler_events.py); here is how the rest of this folder asks whether any are wanted,
 * which is all that an operation pays for otherwise. */
#ifndef DISTLITE_PYTHON_TORCH_PROFILER_H
#define DISTLITE_PYTHON_TORCH_PROFILER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "python/state.h"
#include "python/tensor_arg.h"

/* Whether a profiler of torch is on in this thread; looks for torch's function as long
 * as torch is not imported.  Guarded by the GIL. */
extern bool (*dlpy_torch_profiler_is_on)(void);

static inline bool
dlpy_torch_profiler_wants(const dlpy_tensor *tensor)
{
    return (tensor->is_torch || tensor->view.pieces != NULL)
           && dlpy_torch_profiler_is_on();
}

/* The event of an operation that is about to begin.  `inputs` are an array, a pack, a
 * sequence of these, or None.  NULL, with no exception set: it has no event. */
PyObject *dlpy_torch_event_begin(PyObject *group, const char *operation,
                                 PyObject *inputs);

/* Takes `event`, which may be NULL, and gives `result` back, NULL with an exception set
 * included.  A Work ends the event with its operation; anything else means that this is
 * over. */
PyObject *dlpy_torch_event_end(const dlpy_state *state, PyObject *event,
                               PyObject *result);

#endif
