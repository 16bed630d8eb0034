/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One call from the core into a method of a Python store: takes the GIL, turns the result
 * into the core's types and an exception into DL_INTERRUPTED. */
#ifndef DISTLITE_PYTHON_PYTHON_CALL_H
#define DISTLITE_PYTHON_PYTHON_CALL_H

#include "python/python_store.h"

typedef struct dlpy_python_call {
    PyGILState_STATE gil;
    bool is_foreign;  /* a thread that Python did not know before */
    PyObject *object; /* a reference for the length of the call */
} dlpy_python_call;

/* After a failure there is nothing to end. */
dl_status dlpy_call_begin(dl_store *store, dlpy_python_call *call);

/* Gives the GIL back.  `succeeded` false: an exception is set. */
dl_status dlpy_call_end(dlpy_python_call *call, bool succeeded);

/* The same, with the method's result, taken; NULL is a failure. */
dl_status dlpy_call_end_nothing(dlpy_python_call *call, PyObject *result);
dl_status dlpy_call_end_bytes(dlpy_python_call *call, PyObject *result,
                              dl_buffer *value);
dl_status dlpy_call_end_number(dlpy_python_call *call, PyObject *result,
                               int64_t *number);
dl_status dlpy_call_end_truth(dlpy_python_call *call, PyObject *result, bool *truth);

/* What a store returned as a value; false with an exception. */
bool dlpy_call_store_bytes(PyObject *object, dl_buffer *value);

#endif
