/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Carrying out a request to a store, and the Python object that its reply becomes. */
#ifndef DISTLITE_PYTHON_STORES_STORE_REQUEST_H
#define DISTLITE_PYTHON_STORES_STORE_REQUEST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/buffer.h"
#include "store/store.h"

/* Executes a request on a store of this type, without the GIL if it may wait.  The
 * timeout starts here: converting the arguments may have run Python code.  A status
 * that is not DL_OK has set no exception. */
dl_status dlpy_store_perform(PyTypeObject *type, dl_store *store,
                             const dl_store_request *request, dl_store_reply *reply,
                             int64_t timeout);

/* The `large` function of the next. */
void *dlpy_value_resize(void *data, size_t kept, size_t capacity);

/* Returns an empty buffer that the core fills without the GIL and that then becomes a
 * bytes object.  A large one is allocated as a bytes object from the start: a second
 * copy would cost as much as receiving the value. */
static inline dl_buffer
dlpy_value_buffer(void)
{
    return (dl_buffer){.large = dlpy_value_resize};
}

/* Returns the contents as bytes, or NULL with an exception set.  Large contents are
 * taken out of the buffer. */
PyObject *dlpy_value_take(dl_buffer *buffer);

/* Returns the method's result, or NULL with an exception set. */
PyObject *dlpy_store_result(const dl_store_request *request, dl_store_reply *reply);

#endif
