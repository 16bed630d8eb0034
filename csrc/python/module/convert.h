/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Converts Python values to the core's plain types and back.  Knows nothing of stores
 * or groups.  Unless stated otherwise, functions that return int return 0, or -1 with
 * an exception set; functions that return an object return a new reference, or NULL
 * with an exception set. */
#ifndef DISTLITE_PYTHON_MODULE_CONVERT_H
#define DISTLITE_PYTHON_MODULE_CONVERT_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/deadline.h"
#include "python/module/state.h"

/* Called once per process, when the module is executed. */
int dlpy_convert_init(void);

/* Converts a timedelta, or seconds as int or float, to nanoseconds; `otherwise` is used
 * for None and NULL.  A negative timeout means to wait indefinitely. */
int dlpy_timeout_from(PyObject *object, int64_t otherwise, int64_t *timeout);

PyObject *dlpy_timedelta_from(int64_t timeout);

/* The bytes of an argument, which do not move or change until released.  The caller
 * keeps the object alive. */
typedef struct dlpy_bytes {
    dl_bytes bytes;
    PyObject *encoded; /* a reference to an encoded copy, or NULL */
    Py_buffer view;    /* view.obj is NULL if there is no buffer view */
} dlpy_bytes;

/* Accepts str (encoded as UTF-8; escaped surrogates become the bytes that they stand
 * for), bytes, bytearray and memoryview.  `what` names the argument in error messages.
 * After a failure there is nothing to release. */
int dlpy_bytes_from(PyObject *object, const char *what, dlpy_bytes *bytes);
void dlpy_bytes_release(dlpy_bytes *bytes);

/* The bytes of all items of an iterable.  A str, bytes or bytearray is rejected. */
typedef struct dlpy_bytes_list {
    PyObject *items; /* a private list, which no other code can change */
    dl_bytes *bytes;
    size_t count;
} dlpy_bytes_list;

int dlpy_bytes_list_from(PyObject *iterable, const char *what, dlpy_bytes_list *list);
void dlpy_bytes_list_release(dlpy_bytes_list *list);

/* Returns in `*name` the UTF-8 form of a str, which the object owns.  A NUL character
 * is an error. */
int dlpy_name_from(PyObject *object, const char *what, const char **name);

/* Converts a name to str; bytes that are not UTF-8 become escaped surrogates. */
PyObject *dlpy_text_from(dl_bytes bytes);
PyObject *dlpy_object_from(dl_bytes bytes); /* a bytes object */

/* Accepts int and any object with __index__, within the range of int64.  `what` names
 * the value in error messages. */
int dlpy_int64_from(PyObject *object, const char *what, int64_t *value);

/* Same as dlpy_int64_from(), within the range of int. */
int dlpy_int_from(PyObject *object, const char *what, int *value);

/* Same as dlpy_int_from(), for a rank or a number of ranks: a value out of range is a
 * ValueError. */
int dlpy_rank_from(PyObject *object, const char *what, int *rank);

/* Converts a sequence of ranks to an array, which the caller frees with PyMem_Free().
 * `what` names the ranks in error messages. */
int dlpy_ranks_from(PyObject *sequence, const char *what, int **ranks, int *count);

/* Accepts only True and False: a number in place of a flag is most likely another
 * argument. */
int dlpy_bool_from(PyObject *object, const char *what, bool *value);

/* Appends, and takes the reference to `item`, which is NULL after a failure. */
int dlpy_append(PyObject *list, PyObject *item);

/* Takes the exception that is set, with its traceback, for dlpy_error_restore(); NULL
 * if there is none. */
PyObject *dlpy_error_take(void);
/* Sets the exception, of which it takes the reference, in place of any other. */
void dlpy_error_restore(PyObject *error);

/* For a look-up that has failed: returns 0 if the attribute is missing, and clears that
 * exception; -1 with any other, which stays set. */
int dlpy_forgive_attribute(void);

#endif
