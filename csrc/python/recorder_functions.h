/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The recorder as distlite.tools reads it, and what is done with it after a failure. */
#ifndef DISTLITE_PYTHON_RECORDER_FUNCTIONS_H
#define DISTLITE_PYTHON_RECORDER_FUNCTIONS_H

#include "python/state.h"

int dlpy_add_recorder_functions(PyObject *module);

/* If an operation has timed out or lost its peer since the last time: has the table of
 * the job written.  No exception is set, before and after. */
void dlpy_report_failure(void);

#endif
