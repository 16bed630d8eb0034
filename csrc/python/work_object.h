/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is inside a Work, for the two files that make the type.  Instances are of two
 * kinds.  The core's have a dl_work.  Those that Python constructs, of subclasses above
 * all, have none: a backend written in Python overrides what its operations can tell,
 * and the methods here answer for the rest that nothing has ended, or refuse. */
#ifndef DISTLITE_PYTHON_WORK_OBJECT_H
#define DISTLITE_PYTHON_WORK_OBJECT_H

#include "python/completions.h"
#include "python/cuda_arg.h"
#include "python/work_type.h"

typedef struct dlpy_work {
    PyObject_HEAD dl_work *work; /* fixed; NULL: one of Python's own */
    dlpy_state *state;           /* borrowed: the type holds the module */
    dlpy_completions *completions;
    PyObject *pins;
    PyObject *outputs;
    PyObject *callbacks;  /* list, or NULL */
    PyObject *group_name; /* str, for the repr; NULL: not known */
    PyObject *event;      /* of torch's profiler, until its end; or NULL */
    PyObject *weak_references;
    bool is_watched; /* the next two are in use */
    dl_work_notice notice;
    dlpy_completion completion;
    dlpy_cuda_origin origin; /* of the array, if it is on a device */
    dlpy_guard guard;
} dlpy_work;

extern PyMethodDef dlpy_work_methods[];

/* From here on it holds a reference to itself until it has ended, and is noted then:
 * because there are callbacks, or because nobody else holds it.  The others, which are
 * waited for and dropped, do without. */
void dlpy_work_watch(dlpy_work *self);

PyObject *dlpy_work_await(PyObject *object);

#endif
