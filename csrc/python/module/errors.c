/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/errors.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "python/module/docstrings.h"
#include "python/module/parts.h"
#include "python/record/failure_report.h"

/* Returns the exception of a status that means the same everywhere; NULL for the
 * others. */
static PyObject *
plain_exception(dl_status status)
{
    switch (status) {
    case DL_INVALID:
        return PyExc_ValueError;
    case DL_UNSUPPORTED:
        return PyExc_NotImplementedError;
    case DL_NO_MEMORY:
        return PyExc_MemoryError;
    /* Interrupted, but no exception is set: see raise_status(). */
    case DL_INTERRUPTED:
        return PyExc_RuntimeError;
    default:
        return NULL;
    }
}

/* A closed store is not a DistNetworkError, as the caller closed it and the network did
 * not fail; neither is a store that a forked child must not use. */
static PyObject *
store_exception(const dlpy_state *state, dl_status status)
{
    switch (status) {
    case DL_QUEUE_EMPTY:
        return state->queue_empty_error;
    case DL_NETWORK:
    case DL_PROTOCOL:
    case DL_DENIED:
        return state->network_error;
    /* The process has run out of a resource, such as descriptors or threads. */
    case DL_INTERNAL:
        return state->dist_error;
    default:
        return state->store_error;
    }
}

/* Follows the text of an operation that timed out.  Programs written for gloo match
 * "(Timed out|closed|timeout)" between blanks. */
#define LONGER_TIMEOUT \
    "; a longer timeout can be given to init_process_group(), new_group() or the call"

/* The text may contain keys and host names in any encoding. */
static PyObject *
raise_last_error(PyObject *exception, const char *advice)
{
    char text[DL_ERROR_TEXT_SIZE + sizeof LONGER_TIMEOUT];

    snprintf(text, sizeof text, "%s%s", dl_last_error()->text, advice);
    PyObject *message =
        PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");

    if (message != NULL) {
        PyErr_SetObject(exception, message);
        Py_DECREF(message);
    }
    return NULL;
}

static PyObject *
raise_status(dl_status status, PyObject *otherwise, const char *advice)
{
    /* A signal handler's exception takes precedence, even if the failed operation is
     * another thread's, carried out by this one.  After DL_INTERRUPTED no exception is
     * set if a Python store failed on a thread unknown to Python: the exception was
     * lost with that thread's state, but its text is kept. */
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *plain = plain_exception(status);
    raise_last_error(plain != NULL ? plain : otherwise, advice);
    return NULL;
}

PyObject *
dlpy_raise_store(const dlpy_state *state, dl_status status)
{
    return raise_status(status, store_exception(state, status), "");
}

PyObject *
dlpy_raise_collective(const dlpy_state *state, dl_status status)
{
    bool is_interrupted = PyErr_Occurred() != NULL;
    const char *text = dl_last_error()->text;
    bool is_late = status == DL_TIMEOUT && strstr(text, "timed out after") != NULL;
    const char *advice = is_late ? LONGER_TIMEOUT : "";
    PyObject *result = raise_status(status, state->backend_error, advice);

    if (!is_interrupted) {
        dlpy_note_failure();
    }
    return result;
}

/* A pickled error is looked up in the module that its name gives. */
static int
add_errors(dlpy_state *state, PyObject *module)
{
    const struct {
        const char *name, *doc;
        PyObject **base, **slot;
    } errors[] = {
        {"distlite.DistError", DLPY_DOC_DISTERROR, &PyExc_RuntimeError,
         &state->dist_error},
        {"distlite.DistBackendError", DLPY_DOC_DISTBACKENDERROR, &state->dist_error,
         &state->backend_error},
        {"distlite.DistNetworkError", DLPY_DOC_DISTNETWORKERROR, &state->dist_error,
         &state->network_error},
        {"distlite.DistStoreError", DLPY_DOC_DISTSTOREERROR, &state->dist_error,
         &state->store_error},
        {"distlite.QueueEmptyError", DLPY_DOC_QUEUEEMPTYERROR, &state->store_error,
         &state->queue_empty_error},
    };
    int result = 0;

    for (size_t i = 0; i < sizeof errors / sizeof *errors && result == 0; i++) {
        const char *name = errors[i].name;
        PyObject *made =
            PyErr_NewExceptionWithDoc(name, errors[i].doc, *errors[i].base, NULL);
        *errors[i].slot = made;
        result = made == NULL
                     ? -1
                     : PyModule_AddObjectRef(module, strrchr(name, '.') + 1, made);
    }
    return result;
}

const dlpy_part dlpy_errors = {.begin = add_errors};
