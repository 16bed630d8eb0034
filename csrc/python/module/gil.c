/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/gil.h"

#include "base/interrupt.h"
#include "base/thread.h"
#include "python/record/call_site.h"

/* Notes the calling line.  The core may hold locks here, so no other Python code may run:
 * up to Python 3.11 an allocation can begin a collection, and with it any finalizer. */
static void
note_site(dlpy_state *state)
{
#if PY_VERSION_HEX < 0x030c0000
    int was_enabled = PyGC_Disable();
    dlpy_recorded_site_enter(state);
    if (was_enabled) {
        PyGC_Enable();
    }
#else
    dlpy_recorded_site_enter(state);
#endif
}

/* Releases the GIL, so that other Python threads can run. */
static void
let_others_run(void *context)
{
    dlpy_gil *self = context;

    if (self->state != NULL) {
        note_site(self->state);
    }
    self->saved = PyEval_SaveThread();
}

void
dlpy_gil_leave(dlpy_gil *self, bool is_brief)
{
    dlpy_gil_leave_noting(self, is_brief, NULL);
}

void
dlpy_gil_leave_noting(dlpy_gil *self, bool is_brief, dlpy_state *state)
{
    *self = (dlpy_gil){NULL, state};
    if (is_brief) {
        dl_blocking_set_hook(let_others_run, self);
    } else {
        let_others_run(self);
    }
}

dl_status
dlpy_gil_return(dlpy_gil *self, dl_status status)
{
    dl_blocking_set_hook(NULL, NULL);
    if (self->saved != NULL) {
        PyEval_RestoreThread(self->saved);
    }
    return status == DL_OK && PyErr_Occurred() ? DL_INTERRUPTED : status;
}

bool
dlpy_may_enter(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsInitialized() && !Py_IsFinalizing();
#else
    return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

static _Thread_local int holds;

/* Python runs handlers on the main thread only, so other threads return without
 * acquiring the GIL.  An exception stays set in this thread's state until the call
 * returns and errors.c finds it; no Python code may run until then. */
static dl_status
check_signals(void)
{
    /* Ordered by cost: most threads are not the main thread and never reach the
     * interpreter. */
    if (holds > 0 || !dl_is_main_thread() || !Py_IsInitialized()
        || PyGILState_GetThisThreadState() == NULL) {
        return DL_OK;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    bool is_interrupted = PyErr_Occurred() || PyErr_CheckSignals() < 0;
    PyGILState_Release(gil);
    return is_interrupted ? dl_fail(DL_INTERRUPTED, "interrupted by a signal") : DL_OK;
}

void
dlpy_signals_install(void)
{
    dl_interrupt_install(check_signals);
}

void
dlpy_signals_hold(void)
{
    holds++;
}

void
dlpy_signals_release(void)
{
    holds--;
}
