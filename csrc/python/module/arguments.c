/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/arguments.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int
signature_size(const dlpy_signature *signature)
{
    int size = 0;

    while (size < DLPY_ARGUMENTS_LIMIT && signature->names[size] != NULL) {
        size++;
    }
    return size;
}

/* Cold and not inlined, to keep it out of the path of correct calls. */
static __attribute__((noinline, cold)) int
refuse_more(const dlpy_signature *signature, int limit, bool has_star, Py_ssize_t count)
{
    const char *kind = has_star ? " positional" : "";

    if (limit == 0) {
        PyErr_Format(PyExc_TypeError, "%s() takes no%s arguments (%zd given)",
                     signature->function, kind, count);
    } else {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d%s argument%s (%zd given)",
                     signature->function, limit, kind, limit == 1 ? "" : "s", count);
    }
    return -1;
}

/* Writes every slot of `values`, which the caller has not initialised. */
static inline int
place_positional(const dlpy_signature *signature, PyObject *const *args,
                 Py_ssize_t count, PyObject **values)
{
    int size = 0;

    for (; size < DLPY_ARGUMENTS_LIMIT && signature->names[size] != NULL; size++) {
        values[size] = size < count ? args[size] : NULL;
    }
    if (count + DLPY_KEYWORD_ONLY_LIMIT <= size) {
        return 0;
    }
    int limit = size;
    while (limit > 0 && signature->names[limit - 1][0] == '*') {
        limit--;
    }
    return count > limit ? refuse_more(signature, limit, limit < size, count) : 0;
}

/* Equivalent to PyUnicode_CompareWithASCIIString() == 0, at a fraction of its cost. */
static bool
is_named(PyObject *name, const char *wanted)
{
    const char *text = PyUnicode_DATA(name);

    return PyUnicode_IS_ASCII(name) && text[0] == wanted[0] && strcmp(text, wanted) == 0
           && (size_t)PyUnicode_GET_LENGTH(name) == strlen(wanted);
}

/* The names that there are tell more than the one that there is not. */
static __attribute__((noinline, cold)) int
refuse_keyword(const dlpy_signature *signature, PyObject *name)
{
    char known[512] = "";
    size_t used = 0;

    for (int i = 0; i < signature_size(signature) && used < sizeof known; i++) {
        const char *each = dlpy_argument_name(signature, i);
        if (each[0] != '_') {
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                     i == 0 ? "; it takes " : ", ", each);
        }
    }
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'%s",
                 signature->function, name, known);
    return -1;
}

/* A linear search is fast enough: no function has more than a handful of names. */
static int
place_keyword(const dlpy_signature *signature, PyObject *name, PyObject *value,
              PyObject **values)
{
    int size = signature_size(signature);

    /* For f(**{1: 2}) the interpreter leaves this check to the function. */
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "%s(): keywords must be strings",
                     signature->function);
        return -1;
    }
    for (int i = 0; i < size; i++) {
        if (!is_named(name, dlpy_argument_name(signature, i))) {
            continue;
        }
        if (values[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got two values for argument '%s'",
                         signature->function, dlpy_argument_name(signature, i));
            return -1;
        }
        values[i] = value;
        return 0;
    }
    return refuse_keyword(signature, name);
}

/* Must run after both kinds of arguments are placed: either may supply a required
 * one. */
static int
check_required(const dlpy_signature *signature, PyObject *const *values)
{
    for (int i = 0; i < signature->required; i++) {
        if (values[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() is missing argument '%s'",
                         signature->function, dlpy_argument_name(signature, i));
            return -1;
        }
    }
    return 0;
}

/* With vectorcall the values of keyword arguments follow the positional ones in
 * `args`. */
int
dlpy_place_arguments(const dlpy_signature *signature, PyObject *const *args,
                     Py_ssize_t count, PyObject *keywords, PyObject **values)
{
    if (place_positional(signature, args, count, values) < 0) {
        return -1;
    }
    Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, i);
        if (place_keyword(signature, name, args[count + i], values) < 0) {
            return -1;
        }
    }
    return check_required(signature, values);
}

int
dlpy_take_init_arguments(const dlpy_signature *signature, PyObject *args,
                         PyObject *keywords, PyObject **values)
{
    PyObject *name;
    PyObject *value;
    Py_ssize_t position = 0;

    if (place_positional(signature, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args),
                         values)
        < 0) {
        return -1;
    }
    while (keywords != NULL && PyDict_Next(keywords, &position, &name, &value)) {
        if (place_keyword(signature, name, value, values) < 0) {
            return -1;
        }
    }
    return check_required(signature, values);
}
