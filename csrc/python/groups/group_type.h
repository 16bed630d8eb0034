/* SPDX-License-Identifier: BSD-3-Clause
 *
 * ProcessGroup, the Python object around a dl_group.  Compared and hashed by identity;
 * cannot be pickled.  The module also keeps the default group, so that collectives
 * called without a group find it without running Python code. */
#ifndef DISTLITE_PYTHON_GROUPS_GROUP_TYPE_H
#define DISTLITE_PYTHON_GROUPS_GROUP_TYPE_H

#include <stdbool.h>

#include "pg/device/device.h"
#include "pg/group.h"
#include "python/module/arguments.h"
#include "python/module/state.h"

/* torch's default timeout, 30 minutes. */
#define DLPY_GROUP_TIMEOUT (1800 * DL_SECOND)

typedef struct dlpy_group {
    PyObject_HEAD dl_group *group; /* set by tp_new; replaced in custom groups, and in
                                      those that are reconfigured */
    struct dlpy_former *formers;   /* replaced parts, kept until the group's end */
    /* guarded by the group's critical section */
    PyObject *store;       /* the store that the group was created with */
    PyObject *description; /* str */
    PyObject *name;        /* str; NULL until first used */
    PyObject *handler;     /* called before the core, unless NULL */
    PyObject *weak_references;
    int64_t *global_ranks;  /* by rank in the group; NULL if the same */
    PyObject *object_calls; /* tuple: kept by objects/kept_calls.c; or NULL */
    PyObject *batch; /* list of the open batch's Works; NULL without a batch; used
                              by the thread that has opened it */
    bool is_custom;  /* its operations are written in Python; fixed */
} dlpy_group;

/* Returns the group's name as a new reference to a str, or NULL with an exception
 * set. */
PyObject *dlpy_group_name(PyObject *self);

/* Returns whether the group has a handler. */
static inline bool
dlpy_group_has_handler(const PyObject *self)
{
    return DLPY_LOAD(((const dlpy_group *)self)->handler) != NULL;
}

/* Returns the group's handler as a new reference, or NULL. */
PyObject *dlpy_group_handler(PyObject *group);

/* Returns the kept descriptions of calls on objects as a new reference, or NULL.
 * Replaces them, and takes the reference; the group itself drops them when its ranks
 * change and when it is left. */
PyObject *dlpy_group_object_calls(PyObject *group);
void dlpy_group_keep_object_calls(PyObject *group, PyObject *calls);

/* Opens the calling thread's batch; takes the reference.  Closes it and returns the
 * reference, or NULL if the thread has none open. */
void dlpy_group_open_batch(PyObject *group, PyObject *batch);
PyObject *dlpy_group_close_batch(PyObject *group);

/* Converts a rank of the default group to a rank of this group.  Returns -1 with a
 * ValueError if it is not a member. */
int dlpy_group_rank_of(PyObject *group, int64_t global_rank, int *rank);

int64_t dlpy_group_global_rank(PyObject *group, int rank);

static inline bool
dlpy_group_check(const dlpy_state *state, PyObject *object)
{
    return PyObject_TypeCheck(object, state->group_type);
}

/* Returns the core's group, borrowed as long as `self` lives. */
static inline dl_group *
dlpy_group_core(PyObject *self)
{
    return DLPY_LOAD(((dlpy_group *)self)->group);
}

/* Returns the core's group of an argument, borrowed likewise, or NULL with a TypeError
 * set.  `what` names the argument in the message. */
dl_group *dlpy_group_from(const dlpy_state *state, PyObject *object, const char *what);

/* Returns the list of the objects that the group's open batch keeps alive, borrowed;
 * NULL unless the calling thread has opened one. */
static inline PyObject *
dlpy_group_batch(PyObject *self)
{
    PyObject *batch = DLPY_LOAD(((dlpy_group *)self)->batch);

    return batch != NULL && dl_device_is_batching(dlpy_group_core(self)) ? batch : NULL;
}

/* Parses the arguments of ProcessGroup and meets the other ranks (group_join.c).  Blocks
 * with the GIL released.  Returns -1 with an exception set on failure; `self` is then
 * partly initialised and must be freed. */
int dlpy_group_join(dlpy_state *state, PyObject *args, PyObject *keywords,
                    dlpy_group *self);

#endif
