/* SPDX-License-Identifier: BSD-3-Clause
 *
 * ProcessGroup: the Python object around a dl_group.  Equal and hashed by identity, not
 * pickled.  The module also keeps the default group, so that collectives called without
 * a group find it without running Python code. */
#ifndef DISTLITE_PYTHON_GROUP_TYPE_H
#define DISTLITE_PYTHON_GROUP_TYPE_H

#include <stdbool.h>

#include "pg/group.h"
#include "python/arguments.h"
#include "python/state.h"

typedef struct dlpy_group {
    PyObject_HEAD dl_group *group; /* fixed from tp_new until freed */
    PyObject *store;               /* what it was made over */
    PyObject *description;         /* str */
    PyObject *name;                /* str; NULL until somebody has asked */
    PyObject *weak_references;
    int64_t *global_ranks; /* by rank in the group; NULL: the same */
    PyObject *handler;     /* asked before the core, unless NULL */
    bool is_custom;        /* its operations are those of a subclass */
} dlpy_group;

/* torch's default, 30 minutes. */
#define DLPY_GROUP_TIMEOUT (1800 * DL_SECOND)

/* The work of tp_new: reads its arguments and meets the other ranks.  -1 with an
 * exception set and `self` half made, to be freed. */
int dlpy_group_join(const dlpy_state *state, PyObject *args, PyObject *keywords,
                    dlpy_group *self);

/* _group_refuse(parent, ranks, rank, name, backend, reason): dl_group_refuse(). */
PyObject *dlpy_group_refuse(PyObject *module, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords);

/* Whether an object of `type` made with `args` has its operations written in Python; its
 * core then only knows rank, size and names, which its tp_init tells. */
bool dlpy_group_is_custom(PyTypeObject *type, PyObject *args, PyObject *keywords);
int dlpy_group_begin_custom(const dlpy_state *state, dlpy_group *self);
int dlpy_group_init(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *dlpy_group_adopt(PyObject *self, PyObject *args, PyObject *keywords);

/* A str, borrowed; NULL with an exception set. */
PyObject *dlpy_group_name(PyObject *self);

/* Asks the group's handler, with the function's name and the values that were given by
 * name.  1: it wants the core to do it.  0: `answer` is what the function returns, a
 * reference unless it is None.  -1 with an exception set.  But for 1 the caller's
 * reference to the group is dropped. */
int dlpy_group_handle(PyObject *group, const dlpy_signature *signature,
                      PyObject *const *values, PyObject **answer);
PyObject *dlpy_group_set_handler(PyObject *group, PyObject *handler);

/* Of the calling thread, else of the process; borrowed, NULL before init_process_group. */
PyObject *dlpy_default_group(const dlpy_state *state);

/* -1 with a ValueError if it is none of the group's. */
int dlpy_group_rank_of(PyObject *group, int64_t global_rank, int *rank);

int64_t dlpy_group_global_rank(PyObject *group, int rank);

static inline bool
dlpy_group_check(const dlpy_state *state, PyObject *object)
{
    return PyObject_TypeCheck(object, state->group_type);
}

/* The core's group, borrowed for as long as `self` lives. */
static inline dl_group *
dlpy_group_core(PyObject *self)
{
    return ((dlpy_group *)self)->group;
}

#endif
