/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/convert.h"

#include <datetime.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define MICROSECOND INT64_C(1000)
#define SECONDS_PER_DAY INT64_C(86400)

/* Longer timeouts do not fit into 64-bit nanoseconds; 292 years count as indefinite. */
#define LONGEST_SECONDS (INT64_MAX / DL_SECOND - 1)

/* PyDateTime_IMPORT sets a static variable of this translation unit, so no other file
 * may use the PyDelta and PyDateTime names. */
int
dlpy_convert_init(void)
{
    PyDateTime_IMPORT;
    return PyDateTimeAPI == NULL ? -1 : 0;
}

/* Saturates in both directions, where the product would overflow.  The nanoseconds of a
 * timedelta are never negative: -1 us is stored as -1 day and 86399.999999 s. */
static int64_t
span_from_parts(int64_t seconds, int64_t nanoseconds)
{
    if (seconds < 0) {
        return seconds < -LONGEST_SECONDS ? -1 : seconds * DL_SECOND + nanoseconds;
    }
    return seconds > LONGEST_SECONDS ? INT64_MAX : seconds * DL_SECOND + nanoseconds;
}

/* Infinity is accepted, as programs use it to wait indefinitely. */
static int
span_from_number(PyObject *object, int64_t *timeout)
{
    double seconds = PyFloat_AsDouble(object);

    if (seconds == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    if (isnan(seconds)) {
        PyErr_SetString(PyExc_ValueError, "timeout must not be NaN");
        return -1;
    }
    if (fabs(seconds) > (double)LONGEST_SECONDS) {
        *timeout = seconds < 0 ? -1 : INT64_MAX;
    } else {
        *timeout = (int64_t)(seconds * (double)DL_SECOND);
        /* Less than a nanosecond: 0 would not wait at all. */
        if (seconds < 0 && *timeout == 0) {
            *timeout = -1;
        }
    }
    return 0;
}

/* bool is a subclass of int, but True as a timeout is a mistake.  NumPy's scalars are
 * numbers.Real, of which only float64 is a float; its bool is not. */
static int
is_number(PyObject *object)
{
    if (PyFloat_Check(object) || PyLong_Check(object)) {
        return !PyBool_Check(object);
    }
    PyObject *numbers = PyImport_ImportModule("numbers");
    PyObject *real = numbers == NULL ? NULL : PyObject_GetAttrString(numbers, "Real");
    int answer = real == NULL ? -1 : PyObject_IsInstance(object, real);
    Py_XDECREF(real);
    Py_XDECREF(numbers);
    return answer;
}

int
dlpy_timeout_from(PyObject *object, int64_t otherwise, int64_t *timeout)
{
    if (object == NULL || object == Py_None) {
        *timeout = otherwise;
        return 0;
    }
    if (PyDelta_Check(object)) {
        int64_t seconds = PyDateTime_DELTA_GET_DAYS(object) * SECONDS_PER_DAY
                          + PyDateTime_DELTA_GET_SECONDS(object);
        *timeout = span_from_parts(seconds, PyDateTime_DELTA_GET_MICROSECONDS(object)
                                                * MICROSECOND);
        return 0;
    }
    switch (is_number(object)) {
    case 1:
        return span_from_number(object, timeout);
    case -1:
        return -1;
    }
    PyErr_Format(
        PyExc_TypeError,
        "timeout must be a datetime.timedelta, seconds as a number, or None, not %s",
        Py_TYPE(object)->tp_name);
    return -1;
}

/* Rounds down, so that every negative timeout remains negative. */
PyObject *
dlpy_timedelta_from(int64_t timeout)
{
    int64_t day = SECONDS_PER_DAY * DL_SECOND / MICROSECOND;
    int64_t span = timeout / MICROSECOND - (timeout % MICROSECOND < 0);
    int64_t rest = span % day;
    int64_t second = DL_SECOND / MICROSECOND;

    return PyDelta_FromDSU((int)(span / day), (int)(rest / second),
                           (int)(rest % second));
}

/* The str caches its UTF-8 form, so the common case copies nothing. */
static int
bytes_from_text(PyObject *text, dlpy_bytes *bytes)
{
    Py_ssize_t size;
    const char *data = PyUnicode_AsUTF8AndSize(text, &size);

    if (data == NULL) {
        PyErr_Clear();
        bytes->encoded = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
        if (bytes->encoded == NULL) {
            return -1;
        }
        data = PyBytes_AS_STRING(bytes->encoded);
        size = PyBytes_GET_SIZE(bytes->encoded);
    }
    bytes->bytes = (dl_bytes){(const uint8_t *)data, (size_t)size};
    return 0;
}

/* The view locks the exporter: a bytearray cannot be resized while the core reads it
 * without the GIL.  The exporter itself refuses memory that is not contiguous. */
static int
bytes_from_view(PyObject *object, dlpy_bytes *bytes)
{
    if (PyObject_GetBuffer(object, &bytes->view, PyBUF_SIMPLE) < 0) {
        bytes->view.obj = NULL;
        return -1;
    }
    bytes->bytes =
        (dl_bytes){(const uint8_t *)bytes->view.buf, (size_t)bytes->view.len};
    return 0;
}

/* bytes and str are immutable, so reading them in place is safe without a view. */
int
dlpy_bytes_from(PyObject *object, const char *what, dlpy_bytes *bytes)
{
    bytes->encoded = NULL;
    bytes->view.obj = NULL;
    if (PyUnicode_Check(object)) {
        return bytes_from_text(object, bytes);
    }
    if (PyBytes_Check(object)) {
        bytes->bytes = (dl_bytes){(const uint8_t *)PyBytes_AS_STRING(object),
                                  (size_t)PyBytes_GET_SIZE(object)};
        return 0;
    }
    if (PyByteArray_Check(object) || PyMemoryView_Check(object)) {
        return bytes_from_view(object, bytes);
    }
    PyErr_Format(PyExc_TypeError,
                 "%s must be str, bytes, bytearray or memoryview, not %s; encode it "
                 "first, as with str(x), json.dumps(x), pickle.dumps(x) or x.tobytes()",
                 what, Py_TYPE(object)->tp_name);
    return -1;
}

void
dlpy_bytes_release(dlpy_bytes *bytes)
{
    Py_CLEAR(bytes->encoded);
    if (bytes->view.obj != NULL) {
        PyBuffer_Release(&bytes->view);
    }
}

/* Stores the bytes of item `i`.  An item that would need to be released is replaced by
 * a copy in the list. */
static int
list_item(dlpy_bytes_list *list, Py_ssize_t i, const char *what)
{
    PyObject *item = PyList_GET_ITEM(list->items, i);
    dlpy_bytes bytes;

    if (dlpy_bytes_from(item, what, &bytes) < 0) {
        return -1;
    }
    if (bytes.encoded != NULL || bytes.view.obj != NULL) {
        /* A list of views would block as many bytearrays from being resized, and each
         * view would need its own release. */
        PyObject *copy = dlpy_object_from(bytes.bytes);
        dlpy_bytes_release(&bytes);
        if (copy == NULL || PyList_SetItem(list->items, i, copy) < 0) {
            return -1;
        }
        bytes.bytes.data = (const uint8_t *)PyBytes_AS_STRING(copy);
    }
    list->bytes[i] = bytes.bytes;
    return 0;
}

/* Allocates one element more than needed, so that an empty list is not a special
 * case. */
int
dlpy_bytes_list_from(PyObject *iterable, const char *what, dlpy_bytes_list *list)
{
    *list = (dlpy_bytes_list){0};
    if (PyUnicode_Check(iterable) || PyBytes_Check(iterable)
        || PyByteArray_Check(iterable)) {
        PyErr_Format(PyExc_TypeError, "%s must be a list of str or bytes, not one %s",
                     what, Py_TYPE(iterable)->tp_name);
        return -1;
    }
    list->items = PySequence_List(iterable);
    if (list->items == NULL) {
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(list->items);
    list->count = (size_t)count;
    list->bytes = PyMem_New(dl_bytes, list->count + 1);
    if (list->bytes == NULL) {
        PyErr_NoMemory();
        goto fail;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (list_item(list, i, what) < 0) {
            goto fail;
        }
    }
    return 0;

fail:
    dlpy_bytes_list_release(list);
    return -1;
}

void
dlpy_bytes_list_release(dlpy_bytes_list *list)
{
    Py_CLEAR(list->items);
    PyMem_Free(list->bytes);
    *list = (dlpy_bytes_list){0};
}

/* The core takes C strings and would see a name only up to its first NUL. */
int
dlpy_name_from(PyObject *object, const char *what, const char **name)
{
    Py_ssize_t size;

    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be str, not %s", what,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    *name = PyUnicode_AsUTF8AndSize(object, &size);
    if (*name != NULL && strlen(*name) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%s contains a NUL character", what);
        return -1;
    }
    return *name == NULL ? -1 : 0;
}

/* The inverse of bytes_from_text(), so that every name survives the round trip. */
PyObject *
dlpy_text_from(dl_bytes bytes)
{
    return PyUnicode_DecodeUTF8((const char *)bytes.data, (Py_ssize_t)bytes.size,
                                "surrogateescape");
}

PyObject *
dlpy_object_from(dl_bytes bytes)
{
    return PyBytes_FromStringAndSize((const char *)bytes.data, (Py_ssize_t)bytes.size);
}

/* Accepts what pybind11 does: __index__, but never __int__, which would truncate
 * floats. */
int
dlpy_int64_from(PyObject *object, const char *what, int64_t *value)
{
    if (!PyIndex_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be an integer, not %R, which is of %R",
                     what, object, (PyObject *)Py_TYPE(object));
        return -1;
    }
    PyObject *number = PyNumber_Index(object);
    if (number == NULL) {
        return -1;
    }
    long long result = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (result == -1 && PyErr_Occurred()) {
        return -1;
    }
    *value = result;
    return 0;
}

int
dlpy_int_from(PyObject *object, const char *what, int *value)
{
    int64_t wide;

    if (dlpy_int64_from(object, what, &wide) < 0) {
        return -1;
    }
    if (wide < INT_MIN || wide > INT_MAX) {
        PyErr_Format(PyExc_OverflowError, "%s does not fit into an int: %R", what,
                     object);
        return -1;
    }
    *value = (int)wide;
    return 0;
}

int
dlpy_rank_from(PyObject *object, const char *what, int *rank)
{
    int64_t wide;

    if (dlpy_int64_from(object, what, &wide) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return -1;
        }
        PyErr_Clear();
        wide = INT64_MAX;
    }
    if (wide < INT_MIN || wide > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "%R is not a rank or a number of ranks", object);
        return -1;
    }
    *rank = (int)wide;
    return 0;
}

int
dlpy_ranks_from(PyObject *sequence, const char *what, int **ranks, int *count)
{
    /* A tuple cannot change while the items' __index__ runs. */
    PyObject *items = PySequence_Tuple(sequence);
    if (items == NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s must be a sequence of ranks, not %s", what,
                     Py_TYPE(sequence)->tp_name);
        return -1;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(items);
    int *made = size > INT_MAX ? NULL : PyMem_Calloc((size_t)size + 1, sizeof *made);
    int result = made == NULL ? (PyErr_NoMemory(), -1) : 0;
    for (Py_ssize_t i = 0; result == 0 && i < size; i++) {
        result = dlpy_rank_from(PyTuple_GET_ITEM(items, i), what, &made[i]);
    }
    Py_DECREF(items);
    if (result < 0) {
        PyMem_Free(made);
        return -1;
    }
    *ranks = made;
    *count = (int)size;
    return 0;
}

int
dlpy_bool_from(PyObject *object, const char *what, bool *value)
{
    if (!PyBool_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be True or False, not %s", what,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    *value = object == Py_True;
    return 0;
}

int
dlpy_append(PyObject *list, PyObject *item)
{
    int result = item == NULL ? -1 : PyList_Append(list, item);

    Py_XDECREF(item);
    return result;
}

PyObject *
dlpy_error_take(void)
{
#if PY_VERSION_HEX >= 0x030c0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *error, *trace;

    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(error, trace);
    }
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return error;
#endif
}

void
dlpy_error_restore(PyObject *error)
{
#if PY_VERSION_HEX >= 0x030c0000
    PyErr_SetRaisedException(error);
#else
    PyObject *trace = error == NULL ? NULL : PyException_GetTraceback(error);

    PyErr_Restore(error == NULL ? NULL : Py_NewRef(Py_TYPE(error)), error, trace);
#endif
}

int
dlpy_forgive_attribute(void)
{
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}
