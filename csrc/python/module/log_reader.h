/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Delivers the core's log lines to Python's logging: the reader of base/log.h, which
 * passes lines to distlite/tools/log_records.py, and the check whether logging has
 * handlers.
 *
 * A thread that logs must not call Python.  So handlers are looked for at times when
 * the GIL is held, and the answer "none" is valid until a new handler is created:
 * logging keeps all handlers in one list, whose length any thread can read. */
#ifndef DISTLITE_PYTHON_MODULE_LOG_READER_H
#define DISTLITE_PYTHON_MODULE_LOG_READER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Checks whether the logger "distlite" or the root logger has handlers.  Needs the GIL,
 * with no exception set; imports nothing. */
void dlpy_log_look(void);

/* Releases the GIL until the handlers have received all lines logged so far, for a
 * second at most, so that the lines of a call are delivered before it returns.  An
 * exception may be set. */
void dlpy_log_sync(void);

#endif
