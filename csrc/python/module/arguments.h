/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The argument parser of the extension: matches the arguments that were passed with the
 * signature of a function.  Every argument may be passed by position or by name; those
 * that the same function of torch does not have are keyword-only.  Values are borrowed
 * from the caller's frame; the functions of convert.h convert them. */
#ifndef DISTLITE_PYTHON_MODULE_ARGUMENTS_H
#define DISTLITE_PYTHON_MODULE_ARGUMENTS_H

#include "python/module/state.h"

/* The largest number of parameters of any function here. */
#define DLPY_ARGUMENTS_LIMIT 16

/* The largest number of keyword-only parameters among them. */
#define DLPY_KEYWORD_ONLY_LIMIT 2

typedef struct dlpy_signature {
    const char *function; /* for error messages */
    int required;         /* the first `required` names must be given */
    /* A leading star, on the last names only, marks a keyword-only argument; one whose
     * name begins with an underscore is for the package itself. */
    const char *names[DLPY_ARGUMENTS_LIMIT];
} dlpy_signature;

/* Returns the `i`-th name as callers write it, without the star. */
static inline const char *
dlpy_argument_name(const dlpy_signature *signature, int i)
{
    const char *name = signature->names[i];

    return name[0] == '*' ? name + 1 : name;
}

/* A PyMethodDef entry of a function that parses its arguments with
 * dlpy_take_arguments(). */
#define DLPY_FUNCTION(name, function, documentation)                               \
    {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS, \
     documentation}

/* The arguments of a METH_FASTCALL | METH_KEYWORDS function. */
typedef struct dlpy_call {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *keywords;
} dlpy_call;

/* Defines such a function, of a module or of an object, as `run` with a constant `type`
 * whose fields follow: the first is its signature, for `title`. */
#define DLPY_BUILTIN_HEAD(name)                                             \
    PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t count, \
                   PyObject *keywords)
#define DLPY_BUILTIN(name, title, run, type, ...)                              \
    static DLPY_BUILTIN_HEAD(name)                                             \
    {                                                                          \
        static const type form = {.signature.function = (title), __VA_ARGS__}; \
                                                                               \
        return run(self, &form, (dlpy_call){args, count, keywords});           \
    }

/* Defines such a function, `function`_call, which calls `function` with one borrowed
 * value per name, NULL for an argument that was left out. */
#define DLPY_PARSED(function, title, required, ...)                                \
    static DLPY_BUILTIN_HEAD(function##_call)                                      \
    {                                                                              \
        static const dlpy_signature signature = {title, required, {__VA_ARGS__}};  \
        PyObject *values[DLPY_ARGUMENTS_LIMIT];                                    \
                                                                                   \
        return dlpy_place_arguments(&signature, args, count, keywords, values) < 0 \
                   ? NULL                                                          \
                   : function(self, values);                                       \
    }

/* dlpy_take_arguments() with its call in registers: as a struct in memory it would be
 * copied right after it was written, for which processors wait. */
int dlpy_place_arguments(const dlpy_signature *signature, PyObject *const *args,
                         Py_ssize_t count, PyObject *keywords, PyObject **values);

/* Stores one borrowed reference per name in `values`, NULL for an argument that was
 * left out.  Returns -1 with a TypeError set if an argument is superfluous, missing,
 * unknown or given twice. */
static inline int
dlpy_take_arguments(const dlpy_signature *signature, dlpy_call call, PyObject **values)
{
    return dlpy_place_arguments(signature, call.args, call.count, call.keywords,
                                values);
}

/* Same as dlpy_take_arguments(), for the tuple and dict that tp_init and tp_new
 * receive. */
int dlpy_take_init_arguments(const dlpy_signature *signature, PyObject *args,
                             PyObject *keywords, PyObject **values);

#endif
