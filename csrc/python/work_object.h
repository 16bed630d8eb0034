/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The contents of a Work, for the two files that implement the type.  There are two
 * kinds of instances.  Those that the core creates have a dl_work.  Those that Python
 * constructs, mostly of subclasses, have none: a backend written in Python overrides
 * the methods that it can implement; the others report that the operation has not
 * ended, or raise an error. */
#ifndef DISTLITE_PYTHON_WORK_OBJECT_H
#define DISTLITE_PYTHON_WORK_OBJECT_H

#include "python/completions.h"
#include "python/cuda_arg.h"
#include "python/work_type.h"

typedef struct dlpy_work {
    PyObject_HEAD dl_work *work; /* fixed; NULL if Python constructed the Work */
    dlpy_state *state;           /* borrowed: the type holds the module */
    dlpy_completions *completions;
    PyObject *pins;
    PyObject *outputs;
    PyObject *callbacks;  /* list, or NULL */
    PyObject *group_name; /* str, for the repr; NULL if not known */
    PyObject *event;      /* of torch's profiler, until the end; or NULL */
    PyObject *weak_references;
    bool is_watched; /* notice and completion are in use */
    dl_work_notice notice;
    dlpy_completion completion;
    dlpy_cuda_origin origin; /* of the array, if on a device */
    dlpy_guard guard;
} dlpy_work;

static inline dlpy_work *
work_of(PyObject *object)
{
    return (dlpy_work *)object;
}

extern PyMethodDef dlpy_work_methods[];

/* Makes the Work hold a reference to itself until it has ended, and be noted in
 * `completions` then: because it has callbacks, or because it is not referenced
 * otherwise.  A Work that is waited for and dropped needs neither. */
void dlpy_work_watch(dlpy_work *self);

PyObject *dlpy_work_await(PyObject *object);

#endif
