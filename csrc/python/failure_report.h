/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What follows an operation that timed out or lost a peer: the table of the job's ranks on
 * standard error, and dumps where the environment asks for them.  Both are made by a thread
 * of their own (python/distlite/tools/failure.py), so that the exception waits for neither;
 * of all ranks of a job on a host one makes the table. */
#ifndef DISTLITE_PYTHON_FAILURE_REPORT_H
#define DISTLITE_PYTHON_FAILURE_REPORT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Starts the report if there is something new to tell.  Calls nothing of Python, so an
 * exception may be set. */
void dlpy_note_failure(void);

/* _finish_report(): returns once the report is written, or after a few seconds. */
int dlpy_add_failure_report(PyObject *module);

#endif
