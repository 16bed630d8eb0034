/* SPDX-License-Identifier: BSD-3-Clause
 *
 * From a status of the core to a Python exception: the only place that knows both.  The
 * text is the thread's last error, so raise before calling anything else that may fail.
 * docs/errors.md is the table for users. */
#ifndef DISTLITE_PYTHON_ERRORS_H
#define DISTLITE_PYTHON_ERRORS_H

#include "base/status.h"
#include "python/state.h"

/* Both set an exception and return NULL.  DL_INTERRUPTED means that one is set already:
 * a signal handler's, or that of a store written in Python. */

/* A call of a store, or anything that meets its peers through one. */
PyObject *dlpy_raise_store(const dlpy_state *state, dl_status status);

/* A collective operation: whatever went wrong on the way is DistBackendError. */
PyObject *dlpy_raise_collective(const dlpy_state *state, dl_status status);

#endif
