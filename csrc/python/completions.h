/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Works that have ended, on their way back to Python.  A work may end on a thread that
 * never touches Python; it is then noted here, without the GIL, and what Python keeps
 * for it is let go by the next call that has it.  Works with callbacks go to a thread
 * of Python's own, which waits in dlpy_completions_next(). */
#ifndef DISTLITE_PYTHON_COMPLETIONS_H
#define DISTLITE_PYTHON_COMPLETIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "python/state.h"

/* Embedded in the Python object, which holds a reference to itself from before it is
 * noted until it is dropped. */
typedef struct dlpy_completion {
    dl_list node;
    PyObject *object;
    bool has_callbacks; /* guarded by the lock, as is_noted */
    bool is_noted;
} dlpy_completion;

typedef struct dlpy_completions {
    pthread_mutex_t lock;
    pthread_cond_t is_wanted;
    atomic_bool has_some; /* to drop; a glance, the list itself is guarded */
    /* guarded by lock */
    dl_list to_drop;
    dl_list to_call;
    bool is_stopped;
} dlpy_completions;

void dlpy_completions_init(dlpy_completions *self);

/* Without the GIL as well as with it; once for each. */
void dlpy_completions_note(dlpy_completions *self, dlpy_completion *completion);

/* With the GIL: drops the references of works that have ended.  Cheap when none has. */
void dlpy_completions_drain(dlpy_completions *self);

/* With the GIL: wants the thread to have the object when it has ended, also when it has
 * already. */
void dlpy_completions_want(dlpy_completions *self, dlpy_completion *completion);

/* Waits, without the GIL meanwhile, for an object with callbacks; a new reference.
 * None once stopped. */
PyObject *dlpy_completions_next(dlpy_completions *self);
void dlpy_completions_stop(dlpy_completions *self);

#endif
