/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The group that a call uses if it is given none: that of the process, which
 * init_process_group makes, or that of a thread that acts as a rank
 * (distlite/testing/threads.py). */
#ifndef DISTLITE_PYTHON_GROUPS_DEFAULT_GROUP_H
#define DISTLITE_PYTHON_GROUPS_DEFAULT_GROUP_H

#include "python/module/state.h"

/* Returns the default group of the calling thread, or else of the process, as a new
 * reference; NULL before init_process_group. */
PyObject *dlpy_default_group(dlpy_state *state);

#endif
