/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Meeting the other members of a group: the arguments of ProcessGroup with a backend, and
 * a failure to make the group that the others are told. */
#ifndef DISTLITE_PYTHON_GROUPS_GROUP_JOIN_H
#define DISTLITE_PYTHON_GROUPS_GROUP_JOIN_H

#include "python/groups/group_type.h"

/* torch's default timeout, 30 minutes. */
#define DLPY_GROUP_TIMEOUT (1800 * DL_SECOND)

/* Parses the arguments and meets the other ranks.  Blocks with the GIL released.
 * Returns -1 with an exception set on failure; `self` is then partly initialised and
 * must be freed. */
int dlpy_group_join(dlpy_state *state, PyObject *args, PyObject *keywords,
                    dlpy_group *self);

#endif
