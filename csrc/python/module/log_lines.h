/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Delivers the core's log lines to Python's logging, which may not be called where lines
 * are logged: with locks held, and on threads that do not have the GIL.  A thread of its
 * own passes them to distlite/tools/log_records.py.
 *
 * Whether logging has handlers is looked for at times when the GIL is held: when a group
 * or a store is made, and while the main thread waits. */
#ifndef DISTLITE_PYTHON_MODULE_LOG_LINES_H
#define DISTLITE_PYTHON_MODULE_LOG_LINES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Checks whether the logger "distlite" or the root logger has handlers.  Needs the GIL,
 * with no exception set; does not import logging. */
void dlpy_log_check(void);

/* Releases the GIL until the handlers have received all lines logged so far, for a
 * second at most, so that the lines of a call are delivered before it returns.  An
 * exception may be set. */
void dlpy_log_sync(void);

#endif
