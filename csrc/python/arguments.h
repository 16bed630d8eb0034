/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The one parser of arguments: matches what was passed with what a function takes.
 * Everything may be passed by position or by name, but what torch's functions do not have
 * by name only.  Values are borrowed from the caller's frame; the functions of convert.h
 * read them. */
#ifndef DISTLITE_PYTHON_ARGUMENTS_H
#define DISTLITE_PYTHON_ARGUMENTS_H

#include "python/state.h"

/* The most that any function here takes. */
#define DLPY_ARGUMENTS_LIMIT 16

typedef struct dlpy_signature {
    const char *function; /* for errors */
    int required;         /* the first so many of the names */
    /* The last may begin with a star: by name only. */
    const char *names[DLPY_ARGUMENTS_LIMIT];
} dlpy_signature;

/* As callers write it. */
static inline const char *
dlpy_argument_name(const dlpy_signature *signature, int i)
{
    const char *name = signature->names[i];

    return name[0] == '*' ? name + 1 : name;
}

/* A row of a table of methods, for a function that takes its arguments so. */
#define DLPY_FUNCTION(name, function, documentation)                               \
    {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS, \
     documentation}

/* What METH_FASTCALL|METH_KEYWORDS hands over. */
typedef struct dlpy_call {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *keywords;
} dlpy_call;

/* Fills one slot of `values` per name, NULL for what was left out.  -1 with a TypeError
 * for one too many, missing, unknown or given twice. */
int dlpy_take_arguments(const dlpy_signature *signature, dlpy_call call,
                        PyObject **values);

/* The same for tp_init. */
int dlpy_take_init_arguments(const dlpy_signature *signature, PyObject *args,
                             PyObject *keywords, PyObject **values);

#endif
