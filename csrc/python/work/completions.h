/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Works that have ended, on their way back to Python.  A work may end on a thread that
 * never runs Python code.  It is then noted here without the GIL, and its Python
 * references are dropped by the next call that holds the GIL.  Works with callbacks are
 * handed to a Python thread, which waits in dlpy_completions_next(). */
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

void dlpy_completions_init(dlpy_completions *self);

/* Notes that the work has ended.  Needs no GIL; called once per completion. */
void dlpy_completions_note(dlpy_completions *self, dlpy_completion *completion);

/* Drops the references of works that have ended.  Needs the GIL; cheap if there are
 * none. */
void dlpy_completions_drain(dlpy_completions *self);

/* Passes the object to the callback thread when its work ends, or now if it has ended.
 * Needs the GIL. */
void dlpy_completions_want(dlpy_completions *self, dlpy_completion *completion);

/* Blocks, with the GIL released, until an object with callbacks is available.  Returns
 * a new reference to it, or None after dlpy_completions_stop(). */
PyObject *dlpy_completions_next(dlpy_completions *self);
void dlpy_completions_stop(dlpy_completions *self);

/* For a forked child, which has neither the callback thread nor the threads that may
 * have held the lock. */
void dlpy_completions_renew(dlpy_completions *self);

#endif
