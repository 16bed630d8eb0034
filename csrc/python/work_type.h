/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Work: the Python object of an operation that was not waited for.  It holds the arrays
 * until the operation has ended, and itself as well, so dropping it is safe. */
#ifndef DISTLITE_PYTHON_WORK_TYPE_H
#define DISTLITE_PYTHON_WORK_TYPE_H

#include "pg/work.h"
#include "python/array_guard.h"
#include "python/state.h"

/* What a Work keeps besides the core's work; both borrowed. */
typedef struct dlpy_work_keep {
    PyObject *pins;    /* whatever must stay alive until the end */
    PyObject *outputs; /* what result() gives: a list, or what makes one, which is a
                          tuple, a single array, or None; NULL: it gives nothing */
    dlpy_guard *guard; /* of the arrays' memory, is taken over; NULL: none */
} dlpy_work_keep;

/* A Work whose operation has not begun yet, which it keeps all things for; NULL with an
 * exception set. */
PyObject *dlpy_work_prepare(dlpy_state *state, dlpy_work_keep keep);

/* The group is told of in the repr; of it only the name is kept. */
void dlpy_work_name_group(PyObject *prepared, PyObject *group);

/* What the operation is to ask before it touches its arrays; NULL: nothing. */
const dl_guard *dlpy_work_guard(PyObject *prepared);

/* Takes both references.  None for NULL, which stands for an operation that has become
 * part of a batch: that keeps the arrays. */
PyObject *dlpy_work_begin(PyObject *prepared, dl_work *work);

/* Both, for an operation that asks nothing: one that has begun, or NULL.  Takes the
 * reference to `work`, also on failure. */
PyObject *dlpy_work_new(dlpy_state *state, dl_work *work, dlpy_work_keep keep);

/* Gives the Work of an operation its event (torch_profiler.h), which then ends before the
 * Work first says that the operation has ended.  False: it is of no operation. */
bool dlpy_work_take_event(PyObject *object, PyObject *event);

/* None; the batch that is being collected, if any, keeps `pins`, which may be NULL. */
PyObject *dlpy_work_join_batch(dlpy_state *state, PyObject *pins);

/* What futures.py needs of this module. */
int dlpy_add_work_functions(PyObject *module);

#endif
