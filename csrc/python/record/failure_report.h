/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The report that follows an operation which timed out, lost a peer or met a different
 * call: the table of the job's ranks on standard error, and dumps if the environment
 * asks for them.  A thread of its own produces both (python/distlite/tools/failure.py),
 * so the exception is not delayed.  Of all ranks of a job on a host, one writes the
 * table. */
#ifndef DISTLITE_PYTHON_RECORD_FAILURE_REPORT_H
#define DISTLITE_PYTHON_RECORD_FAILURE_REPORT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Starts the report if there is a new failure.  Runs no Python code, so an exception
 * may be set. */
void dlpy_note_failure(void);

#endif
