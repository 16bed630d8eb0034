/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Translates a status of the core to a Python exception; no other file knows both.  The
 * message is the thread's last error, so raise before calling anything else that may
 * fail.  docs/errors.md has the table for users. */
#ifndef DISTLITE_PYTHON_MODULE_ERRORS_H
#define DISTLITE_PYTHON_MODULE_ERRORS_H

#include "base/status.h"
#include "python/module/state.h"

/* Both functions set an exception and return NULL.  For DL_INTERRUPTED an exception is
 * set already, by a signal handler or by a store written in Python. */

/* For calls of a store, and for operations that meet their peers through one. */
PyObject *dlpy_raise_store(const dlpy_state *state, dl_status status);

/* For collective operations: every failure of the transport is a DistBackendError. */
PyObject *dlpy_raise_collective(const dlpy_state *state, dl_status status);

#endif
