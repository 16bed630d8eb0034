/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The GIL and Python's signal handlers while a call is blocked in the core.
 *
 * The GIL is released before the call; for a brief call, whose peers have usually
 * arrived already, it is released only when the call has to wait (base/interrupt.h).
 *
 * Ctrl-C interrupts the call: between the slices of its waits the core calls a check
 * here, which runs Python's signal handlers. */
#ifndef DISTLITE_PYTHON_MODULE_GIL_H
#define DISTLITE_PYTHON_MODULE_GIL_H

#include <stdbool.h>

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/status.h"
#include "python/module/state.h"

typedef struct dlpy_gil {
    PyThreadState *saved; /* NULL while this thread holds the GIL */
    dlpy_state *state;    /* whose recorder notes the calling line, or NULL */
} dlpy_gil;

/* Prepares the call; from here on the thread must not use Python. */
void dlpy_gil_leave(dlpy_gil *self, bool is_brief);

/* The same for a call that is recorded only if it waits: the calling line is looked up
 * when the GIL is released, so a brief call that need not wait does not pay for it. */
void dlpy_gil_leave_noting(dlpy_gil *self, bool is_brief, dlpy_state *state);

/* Reacquires the GIL and returns the status of the call.  Returns DL_INTERRUPTED
 * instead of DL_OK if a signal handler has raised an exception, which would otherwise
 * be lost. */
dl_status dlpy_gil_return(dlpy_gil *self, dl_status status);

/* Returns whether a thread without the GIL may acquire it: the interpreter must not be
 * entered while it is finalizing. */
bool dlpy_may_enter(void);

void dlpy_signals_install(void);

/* Between hold and release, calls of this thread are not interrupted.  For calls that
 * cannot report an exception, such as deallocation; the signal is handled later by the
 * interpreter.  May be nested. */
void dlpy_signals_hold(void);
void dlpy_signals_release(void);

/* Ends something in the core, which may wait for threads or locks and cannot report an
 * exception: without the GIL, and with signals held. */
#define DLPY_END(call)          \
    do {                        \
        dlpy_signals_hold();    \
        Py_BEGIN_ALLOW_THREADS  \
        call;                   \
        Py_END_ALLOW_THREADS    \
        dlpy_signals_release(); \
    } while (0)

#endif
