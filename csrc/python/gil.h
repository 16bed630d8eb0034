/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Python's lock around a call into the core that may wait: given up before the call, or,
 * where the call is brief and its peers are mostly there already, only once it has to
 * wait (base/blocking.h). */
#ifndef DISTLITE_PYTHON_GIL_H
#define DISTLITE_PYTHON_GIL_H

#include <stdbool.h>

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/status.h"

typedef struct dlpy_gil {
    PyThreadState *saved; /* NULL: this thread has the lock */
} dlpy_gil;

/* From here on the thread must not touch Python. */
void dlpy_gil_leave(dlpy_gil *self, bool is_brief);

/* The status of the call; DL_INTERRUPTED where a signal's exception has come up, which
 * would be lost if the call had come to a good end all the same. */
dl_status dlpy_gil_return(dlpy_gil *self, dl_status status);

/* Whether a thread that has no lock may ask for it: while the interpreter ends it must not
 * be entered any more. */
bool dlpy_may_enter(void);

#endif
