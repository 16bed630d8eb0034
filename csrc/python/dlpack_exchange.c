/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/dlpack_exchange.h"

#include <string.h>

#include "python/dlpack_layout.h"

/* The types seen last; most programs use one or two.  The cache holds references, so
 * that no other type can be created at the same address.  A table lives as long as the
 * process. */
static struct {
    PyTypeObject *type;
    const dlpack_exchange *table; /* NULL if the type has none */
    dlpy_library library;
} seen[4];

static const dlpack_exchange *
table_of(PyTypeObject *type)
{
    PyObject *capsule =
        PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const dlpack_exchange *table = NULL;

    if (capsule == NULL) {
        PyErr_Clear();
        return NULL;
    }
    if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
        table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    }
    Py_DECREF(capsule);
    return table != NULL && table->major == 1 ? table : NULL;
}

const dlpack_exchange *
dlpy_exchange_find(PyTypeObject *type, dlpy_library *library)
{
    size_t last = sizeof seen / sizeof *seen - 1;

    for (size_t i = 0; i <= last; i++) {
        if (seen[i].type == type) {
            *library = seen[i].library;
            return seen[i].table;
        }
    }
    const dlpack_exchange *table = table_of(type);
    *library = dlpy_library_of(type);
    PyTypeObject *forgotten = seen[last].type;
    memmove(&seen[1], &seen[0], last * sizeof *seen);
    seen[0].type = type;
    seen[0].table = table;
    seen[0].library = *library;
    Py_INCREF(type);
    /* Must come last: freeing a type may run Python code that calls this function. */
    Py_XDECREF(forgotten);
    return table;
}

static int
answers_yes(PyObject *object, const char *question)
{
    PyObject *answer = PyObject_CallMethod(object, question, NULL);

    if (answer == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    int yes = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return yes;
}

/* torch only marks a tensor as conjugated or negated, and leaves the elements as they
 * are until they are read.  Negations are pending only in imaginary parts of
 * conjugates, which are at every other number: contiguous real elements, if there are
 * at least two, need no check. */
static int
check_pending(PyObject *object, const char *parameter, const dl_tensor *view)
{
    bool is_complex = view->dtype == DL_COMPLEX64 || view->dtype == DL_COMPLEX128;

    if (!is_complex && view->is_contiguous && view->count > 1) {
        return 0;
    }
    int is_conjugate = is_complex ? answers_yes(object, "is_conj") : 0;
    int is_negative = is_conjugate == 0 ? answers_yes(object, "is_neg") : 0;
    if (is_conjugate > 0 || is_negative > 0) {
        PyErr_Format(PyExc_ValueError,
                     "`%s` is a view whose %s is still pending; pass `%s.%s()`",
                     parameter, is_conjugate ? "conjugation" : "change of sign",
                     parameter, is_conjugate ? "resolve_conj" : "resolve_neg");
        return -1;
    }
    return is_conjugate < 0 || is_negative < 0 ? -1 : 0;
}

int
dlpy_exchange_view(PyObject *object, const char *parameter, dl_tensor *view,
                   dlpy_dimensions *dimensions)
{
    dlpy_library library;
    const dlpack_exchange *table = dlpy_exchange_find(Py_TYPE(object), &library);
    dlpack_tensor tensor;

    /* A borrowed struct does not tell whether it may be written to; a capsule does. */
    if (table == NULL || table->borrow == NULL || library == DLPY_LIBRARY_OTHER) {
        return 0;
    }
    if (table->borrow(object, &tensor) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1;
        }
        /* torch's message here contains a C++ stack trace; the error of __dlpack__() is
         * one line. */
        PyErr_Clear();
        return 0;
    }
    if (dlpy_dlpack_read(&tensor, parameter, view, dimensions) < 0) {
        return -1;
    }
    if (view->data == NULL && view->count > 0) {
        PyErr_Format(PyExc_ValueError, "`%s` has no memory behind it", parameter);
        return -1;
    }
    return check_pending(object, parameter, view) < 0 ? -1 : 1;
}

static void
free_owned(PyObject *capsule)
{
    dlpack_versioned *owned = PyCapsule_GetPointer(capsule, NULL);

    if (owned != NULL && owned->deleter != NULL) {
        owned->deleter(owned);
    }
}

PyObject *
dlpy_exchange_own(PyObject *object)
{
    dlpy_library library;
    const dlpack_exchange *table = dlpy_exchange_find(Py_TYPE(object), &library);
    dlpack_versioned *owned = NULL;

    if (table == NULL || table->own == NULL) {
        return Py_NewRef(Py_None);
    }
    if (table->own(object, &owned) < 0) {
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(owned, NULL, free_owned);
    if (capsule == NULL && owned->deleter != NULL) {
        owned->deleter(owned);
    }
    return capsule;
}
