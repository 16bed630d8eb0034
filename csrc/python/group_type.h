/* SPDX-License-Identifier: BSD-3-Clause
 *
 * ProcessGroup: the Python object around a dl_group.  Equal and hashed by identity, not
 * pickled.  The module also keeps the default group, so that collectives called without
 * a group find it without running Python code. */
#ifndef DISTLITE_PYTHON_GROUP_TYPE_H
#define DISTLITE_PYTHON_GROUP_TYPE_H

#include <stdbool.h>

#include "pg/group.h"
#include "python/state.h"

typedef struct dlpy_group {
    PyObject_HEAD dl_group *group; /* fixed from tp_new until freed */
    PyObject *store;               /* what it was made over */
    PyObject *description;         /* str */
    PyObject *weak_references;
    int64_t *global_ranks; /* by rank in the group; NULL: the same */
} dlpy_group;

/* torch's default, 30 minutes. */
#define DLPY_GROUP_TIMEOUT (1800 * DL_SECOND)

/* The work of tp_new: reads its arguments and meets the other ranks.  -1 with an
 * exception set and `self` half made, to be freed. */
int dlpy_group_join(const dlpy_state *state, PyObject *args, PyObject *keywords,
                    dlpy_group *self);

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
