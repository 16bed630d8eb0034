/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Python values to the core's plain types and back.  Knows nothing of stores or groups.
 * Every function returns 0 or a new reference, or -1 or NULL with an exception set. */
#ifndef DISTLITE_PYTHON_CONVERT_H
#define DISTLITE_PYTHON_CONVERT_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/deadline.h"
#include "python/state.h"

/* Once per process, from the module's exec. */
int dlpy_convert_init(void);

/* timedelta, or int or float seconds; None or NULL is `otherwise`.  Negative waits for
 * ever. */
int dlpy_timeout_from(PyObject *object, int64_t otherwise, int64_t *timeout);
PyObject *dlpy_timedelta_from(int64_t timeout);

/* The bytes of an argument, which stay as they are until released.  The caller keeps the
 * object alive. */
typedef struct dlpy_bytes {
    dl_bytes bytes;
    PyObject *encoded; /* NULL unless it took a copy */
    Py_buffer view;    /* view.obj is NULL unless it took a view */
} dlpy_bytes;

/* str (UTF-8; escaped surrogates are the bytes they stand for), bytes, bytearray or
 * memoryview.  `what` names the argument in errors.  After a failure there is nothing to
 * release. */
int dlpy_bytes_from(PyObject *object, const char *what, dlpy_bytes *bytes);
void dlpy_bytes_release(dlpy_bytes *bytes);

/* As many, from any iterable that is not itself a str or bytes. */
typedef struct dlpy_bytes_list {
    PyObject *items; /* a list of our own, so that nobody changes it meanwhile */
    dl_bytes *bytes;
    size_t count;
} dlpy_bytes_list;

int dlpy_bytes_list_from(PyObject *iterable, const char *what, dlpy_bytes_list *list);
void dlpy_bytes_list_release(dlpy_bytes_list *list);

/* The UTF-8 of a str without NUL characters, which the object keeps. */
int dlpy_name_from(PyObject *object, const char *what, const char **name);

/* A name as str: bytes that are not UTF-8 become escaped surrogates. */
PyObject *dlpy_text_from(dl_bytes bytes);
PyObject *dlpy_object_from(dl_bytes bytes); /* bytes */

/* int and whatever has __index__, in the range of int64.  `what` names it in errors. */
int dlpy_int64_from(PyObject *object, const char *what, int64_t *value);

/* The same in the range of an int. */
int dlpy_int_from(PyObject *object, const char *what, int *value);

/* The same for a rank, or a number of ranks. */
int dlpy_rank_from(PyObject *object, const char *what, int *rank);

/* A sequence of ranks, in memory for the caller to give back by PyMem_Free().  `what`
 * names it in errors. */
int dlpy_ranks_from(PyObject *sequence, const char *what, int **ranks, int *count);

/* Exactly True or False: a number in a flag's place is most likely another argument. */
int dlpy_bool_from(PyObject *object, const char *what, bool *value);

#endif
