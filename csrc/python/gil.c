/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/gil.h"

#include "base/interrupt.h"

/* Releases the GIL, so that other Python threads can run. */
static void
let_others_run(void *context)
{
    ((dlpy_gil *)context)->saved = PyEval_SaveThread();
}

void
dlpy_gil_leave(dlpy_gil *self, bool is_brief)
{
    self->saved = NULL;
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
