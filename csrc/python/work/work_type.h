/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Work: the Python object of an operation that was not waited for.  It keeps the
 * arrays, and itself, alive until the operation has ended, so dropping it is safe. */
#ifndef DISTLITE_PYTHON_WORK_WORK_TYPE_H
#define DISTLITE_PYTHON_WORK_WORK_TYPE_H

#include "pg/work.h"
#include "python/arrays/array_guard.h"
#include "python/module/state.h"

/* The objects that a Work keeps besides the core's work; both references are
 * borrowed. */
typedef struct dlpy_work_keep {
    PyObject *pins; /* must stay alive until the end */
    /* What result() returns: a list, or a tuple, single array or None to make one from;
     * NULL if there is no result. */
    PyObject *outputs;
    dlpy_guard *guard; /* taken over; NULL if there is none */
} dlpy_work_keep;

/* Returns a Work whose operation has not begun yet, which already holds all references;
 * NULL with an exception set on failure. */
PyObject *dlpy_work_prepare(dlpy_state *state, const dlpy_work_keep *keep);

/* Stores the group's name, for the repr. */
void dlpy_work_name_group(PyObject *prepared, PyObject *group);

/* Returns the guard that the operation must check before it accesses its arrays; NULL
 * if there is none. */
const dl_guard *dlpy_work_guard(PyObject *prepared);

/* Takes both references and returns the Work. */
PyObject *dlpy_work_begin(PyObject *prepared, dl_work *work);

/* Withdraws a message that has begun, because another one of its batch could not. */
void dlpy_work_withdraw(PyObject *object);

/* The same for a message without a work, which ended well at once. */
PyObject *dlpy_work_end(PyObject *prepared, const dl_call *message,
                        dl_deadline deadline);

/* For an operation that has become part of the group's batch: the batch takes the
 * reference, and keeps the arrays until its own Work ends.  Returns None, or NULL with
 * an exception set. */
PyObject *dlpy_work_join_batch(PyObject *prepared, PyObject *group);

/* Combines dlpy_work_prepare() and dlpy_work_begin(), for an operation without a guard
 * to check that has begun.  Takes the reference to `work`, also on failure. */
PyObject *dlpy_work_new(dlpy_state *state, dl_work *work, const dlpy_work_keep *keep);

/* Attaches the event (events.h) to a Work; the event ends before the
 * Work first reports that the operation has ended.  Returns false if the Work has no
 * operation. */
bool dlpy_work_take_event(PyObject *object, PyObject *event);

#endif
