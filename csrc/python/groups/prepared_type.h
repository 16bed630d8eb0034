/* SPDX-License-Identifier: BSD-3-Clause
 *
 * _Prepared: a call whose arguments have been converted and checked, and that can be
 * started again and again (persistent_calls.py).  A function makes one, in place of a
 * Work, if its argument `_prepare` is True. */
#ifndef DISTLITE_PYTHON_GROUPS_PREPARED_TYPE_H
#define DISTLITE_PYTHON_GROUPS_PREPARED_TYPE_H

#include "pg/group.h"
#include "python/work/work_type.h"

/* Checks the call, and returns a _Prepared that keeps a copy of `call`, all of `keep`
 * and `inputs`, which the events of torch's profiler show; NULL with an exception set
 * on failure.  Each start gets `timeout` nanoseconds. */
PyObject *dlpy_prepared_new(dlpy_state *state, PyObject *group, const dl_call *call,
                            const dlpy_work_keep *keep, PyObject *inputs,
                            int64_t timeout);

#endif
