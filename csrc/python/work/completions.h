/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Works that have ended, on their way back to Python.  A work may end on a thread that
 * never runs Python code.  It is then noted here without the GIL, and its Python
 * references are dropped by the next call that holds the GIL.  Works with callbacks are
 * handed to a Python thread, which waits in _next_finished(). */
#ifndef DISTLITE_PYTHON_WORK_COMPLETIONS_H
#define DISTLITE_PYTHON_WORK_COMPLETIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "python/module/state.h"

/* Embedded in the Python object, which holds a reference to itself from before the
 * completion can be noted until that reference is dropped. */
typedef struct dlpy_completion {
    dl_list node;
    PyObject *object;
    bool has_callbacks; /* guarded by the lock, like is_noted */
    bool is_noted;
} dlpy_completion;

typedef struct dlpy_completions {
    pthread_mutex_t lock;
    pthread_cond_t is_wanted;
    atomic_bool has_some; /* hint, read unlocked: to_drop is not empty */
    /* guarded by lock */
    dl_list to_drop;
    dl_list to_call;
    bool is_stopped;
} dlpy_completions;

/* Notes that the work has ended.  Needs no GIL; called once per completion. */
void dlpy_completions_note(dlpy_completions *self, dlpy_completion *completion);

/* Drops the references of works that have ended.  Needs the GIL; cheap if there are
 * none. */
void dlpy_completions_drain(dlpy_completions *self);

/* Passes the object to the callback thread when its work ends, or now if it has ended.
 * Needs the GIL. */
void dlpy_completions_want(dlpy_completions *self, dlpy_completion *completion);

/* Makes the module's completions, and adds the functions by which futures.py takes works
 * from them. */

#endif
