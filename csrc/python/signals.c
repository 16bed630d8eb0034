/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/signals.h"

#include <stdbool.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "python/log_reader.h"
#include "python/state.h"

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
    if (!is_interrupted) {
        dlpy_log_look();
    }
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
