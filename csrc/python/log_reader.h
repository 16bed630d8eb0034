/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The log's way into Python's logging: the reader of base/log_queue.h, which hands lines to
 * distlite/log_records.py, and the knowledge of whether there are handlers for them.
 *
 * Whoever logs may not ask Python.  So it is looked whether there are handlers, at times at
 * which Python is at hand, and the answer "none" counts until a new handler is made:
 * logging keeps all of them in one list, whose length can be read by any thread. */
#ifndef DISTLITE_PYTHON_LOG_READER_H
#define DISTLITE_PYTHON_LOG_READER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Looks whether the logger "distlite" or the root logger has handlers.  Needs the GIL, and
 * no exception may be set; imports nothing. */
void dlpy_log_look(void);

/* Gives up the GIL until the lines so far are with their handlers, for a second at most,
 * so that a call's lines are there when it returns.  An exception may be set. */
void dlpy_log_sync(void);

int dlpy_add_log_reader(PyObject *module);

#endif
