/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/default_group.h"

#include <stdatomic.h>

#include "base/log.h"
#include "pg/agree/deadlock.h"
#include "python/groups/group_type.h"
#include "python/module/docstrings.h"
#include "python/module/parts.h"

/* The default group of a thread that acts as a rank.  The reference is borrowed: the
 * code that set it keeps the group alive until it is replaced. */
typedef struct thread_world {
    bool is_set;
    dlpy_group *group; /* NULL if it has no default group */
} thread_world;

static _Thread_local thread_world own_world;

/* True once any thread has set a default group; until then the lookup is skipped. */
static atomic_bool has_thread_groups;

PyObject *
dlpy_default_group(dlpy_state *state)
{
    if (atomic_load_explicit(&has_thread_groups, memory_order_relaxed)
        && own_world.is_set) {
        return Py_XNewRef((PyObject *)own_world.group);
    }
    dlpy_mutex_lock(&state->lock);
    PyObject *group = Py_XNewRef(state->default_group);
    dlpy_mutex_unlock(&state->lock);
    return group;
}

static PyObject *
set_thread_group(PyObject *module, PyObject *group)
{
    if (group != Py_None
        && dlpy_group_from(dlpy_state_of_module(module), group, "group") == NULL) {
        return NULL;
    }
    own_world = (thread_world){
        .is_set = true,
        .group = group == Py_None ? NULL : (dlpy_group *)group,
    };
    atomic_store(&has_thread_groups, true);
    Py_RETURN_NONE;
}

/* The group is freed, if at all, without the lock. */
static void
replace_default(dlpy_state *state, PyObject *group)
{
    dlpy_mutex_lock(&state->lock);
    PyObject *former = state->default_group;
    state->default_group = Py_XNewRef(group);
    dlpy_mutex_unlock(&state->lock);
    Py_XDECREF(former);
}

/* Also sets the rank that the core's log lines carry from here on. */
static PyObject *
set_default_group(PyObject *module, PyObject *group)
{
    dlpy_state *state = dlpy_state_of_module(module);

    if (group == Py_None) {
        dl_deadlock_set_world(NULL);
        replace_default(state, NULL);
        dl_log_set_rank(-1);
        Py_RETURN_NONE;
    }
    if (!dlpy_group_check(state, group)) {
        PyErr_Format(PyExc_TypeError, "WORLD must be a ProcessGroup or None, not %s",
                     Py_TYPE(group)->tp_name);
        return NULL;
    }
    dl_deadlock_set_world(dlpy_group_core(group));
    replace_default(state, group);
    dl_log_set_rank(dl_group_rank(dlpy_group_core(group)));
    Py_RETURN_NONE;
}

static PyMethodDef module_functions[] = {
    {"_set_default_group", set_default_group, METH_O, DLPY_DOC__SET_DEFAULT_GROUP},
    {"_set_thread_group", set_thread_group, METH_O, DLPY_DOC__SET_THREAD_GROUP},
    {0},
};

const dlpy_part dlpy_default_groups = {.functions = module_functions};
