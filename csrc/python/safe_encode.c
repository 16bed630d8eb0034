/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/reader.h"
#include "python/arguments.h"
#include "python/convert.h"
#include "python/safe_codec.h"

/* Values are collected in a C buffer, as appending small pieces to a bytearray is slow,
 * and moved to the caller's bytearray before `other` is called, and at the end.
 * `other` may run any code, including code that changes the containers being traversed;
 * so lists and dicts are traversed as private copies. */
typedef struct encoder {
    dl_buffer pending; /* moved to `out` before any other code reads that */
    PyObject *out;     /* bytearray */
    PyObject *other;   /* appends a value of another kind to `out` */
    int64_t beside;    /* bytes objects of this length or more go to `other` */
} encoder;

static int put(encoder *self, PyObject *value, int depth);

static int
flush(encoder *self)
{
    Py_ssize_t size = PyByteArray_GET_SIZE(self->out);
    dl_bytes pending = dl_buffer_bytes(&self->pending);

    if (dl_buffer_check(&self->pending) != DL_OK) {
        PyErr_NoMemory();
        return -1;
    }
    if (pending.size == 0) {
        return 0;
    }
    if (PyByteArray_Resize(self->out, size + (Py_ssize_t)pending.size) < 0) {
        return -1;
    }
    memcpy(PyByteArray_AS_STRING(self->out) + size, pending.data, pending.size);
    dl_buffer_clear(&self->pending);
    return 0;
}

/* Also handles values that are nested too deep, for which `other` raises the error. */
static int
put_other(encoder *self, PyObject *value, int depth)
{
    if (flush(self) < 0) {
        return -1;
    }
    PyObject *result = PyObject_CallFunction(self->other, "Oi", value, depth);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static void
put_head(encoder *self, char letter, Py_ssize_t count)
{
    uint8_t head[1 + DLPY_SAFE_COUNT_BYTES] = {(uint8_t)letter};
    size_t left = (size_t)count;
    size_t size = 1;

    for (; left > 127; left >>= 7) {
        head[size++] = (uint8_t)(left | 128);
    }
    head[size++] = (uint8_t)left;
    dl_buffer_put(&self->pending, (dl_bytes){head, size});
}

static int
put_bytes(encoder *self, char letter, const char *data, Py_ssize_t size)
{
    put_head(self, letter, size);
    dl_buffer_put(&self->pending, (dl_bytes){(const uint8_t *)data, (size_t)size});
    return 0;
}

/* Encodes an integer in the fewest bytes that hold it with its sign. */
static int
put_int(encoder *self, PyObject *value, int depth)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    uint64_t bits = (uint64_t)number;
    uint64_t magnitude = number < 0 ? -bits : bits;
    Py_ssize_t size = 1;
    char bytes[8];

    /* The second case is the smallest 64-bit integer, which negation does not
     * change. */
    if (overflow != 0 || magnitude >> 63 != 0) {
        return put_other(self, value, depth);
    }
    while (size < 8 && magnitude >> (8 * size - 1) != 0) {
        size++;
    }
    for (int i = 0; i < size; i++) {
        bytes[i] = (char)(bits >> (8 * i));
    }
    return put_bytes(self, 'i', bytes, size);
}

static int
put_float(encoder *self, PyObject *value)
{
    double number = PyFloat_AS_DOUBLE(value);
    uint64_t bits;

    memcpy(&bits, &number, sizeof bits);
    dl_put_u8(&self->pending, 'f');
    dl_put_u64(&self->pending, bits);
    return 0;
}

/* A lone surrogate is not valid text, but Python's strings may contain it. */
static int
put_str(encoder *self, PyObject *value)
{
    if (PyUnicode_IS_COMPACT_ASCII(value)) {
        return put_bytes(self, 's', (const char *)PyUnicode_1BYTE_DATA(value),
                         PyUnicode_GET_LENGTH(value));
    }
    PyObject *encoded = PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass");
    if (encoded == NULL) {
        return -1;
    }
    put_bytes(self, 's', PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded));
    Py_DECREF(encoded);
    return 0;
}

/* Prepends a step to the location `at` of an exception that has one; `format` prints
 * the step. */
static int
fail_at(const char *format, PyObject *at)
{
    PyObject *kind;
    PyObject *error;
    PyObject *trace;

    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    PyObject *place = PyObject_GetAttrString(error, "at");
    PyObject *step = place == NULL ? NULL : PyUnicode_FromFormat(format, at);
    if (step != NULL) {
        PyUnicode_Append(&step, place);
    }
    if (step != NULL) {
        (void)PyObject_SetAttrString(error, "at", step);
    }
    Py_XDECREF(place);
    Py_XDECREF(step);
    /* Errors of other kinds have no location. */
    PyErr_Clear();
    PyErr_Restore(kind, error, trace);
    return -1;
}

/* A tuple's length cannot change meanwhile. */
static int
put_items(encoder *self, char letter, PyObject *items, int depth)
{
    Py_ssize_t count = PyTuple_GET_SIZE(items);

    put_head(self, letter, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (put(self, PyTuple_GET_ITEM(items, i), depth) < 0) {
            PyObject *at = PyLong_FromSsize_t(i);
            (void)(at != NULL && fail_at("[%S]", at));
            Py_XDECREF(at);
            return -1;
        }
    }
    return 0;
}

static int
put_list(encoder *self, PyObject *value, int depth)
{
    PyObject *items = PyList_AsTuple(value);

    if (items == NULL) {
        return -1;
    }
    int result = put_items(self, 'l', items, depth);
    Py_DECREF(items);
    return result;
}

/* A private copy cannot change meanwhile. */
static int
put_dict(encoder *self, PyObject *value, int depth)
{
    PyObject *items = PyDict_Copy(value);
    PyObject *key;
    PyObject *item;
    Py_ssize_t at = 0;
    int result = 0;

    if (items == NULL) {
        return -1;
    }
    put_head(self, 'd', PyDict_GET_SIZE(items));
    while (result == 0 && PyDict_Next(items, &at, &key, &item)) {
        if (put(self, key, depth) < 0) {
            result = fail_at("[key %R]", key);
        } else if (put(self, item, depth) < 0) {
            result = fail_at("[%R]", key);
        }
    }
    Py_DECREF(items);
    return result;
}

static int
put_constant(encoder *self, char letter)
{
    dl_put_u8(&self->pending, (uint8_t)letter);
    return 0;
}

static int
put(encoder *self, PyObject *value, int depth)
{
    if (depth > DLPY_SAFE_DEPTH_LIMIT) {
        return put_other(self, value, depth);
    }
    if (value == Py_None) {
        return put_constant(self, 'N');
    }
    if (PyBool_Check(value)) {
        return put_constant(self, value == Py_True ? 'T' : 'F');
    }
    if (PyLong_CheckExact(value)) {
        return put_int(self, value, depth);
    }
    if (PyFloat_CheckExact(value)) {
        return put_float(self, value);
    }
    if (PyUnicode_CheckExact(value)) {
        return put_str(self, value);
    }
    if (PyList_CheckExact(value)) {
        return put_list(self, value, depth + 1);
    }
    if (PyTuple_CheckExact(value)) {
        return put_items(self, 't', value, depth + 1);
    }
    if (PyDict_CheckExact(value)) {
        return put_dict(self, value, depth + 1);
    }
    if (PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) < self->beside) {
        return put_bytes(self, 'b', PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    }
    return put_other(self, value, depth);
}

PyObject *
dlpy_put_plain(PyObject *module, PyObject *const *args, Py_ssize_t count,
               PyObject *keywords)
{
    static const dlpy_signature signature = {
        "_put_plain", 5, {"out", "value", "beside", "depth", "other"}};
    PyObject *values[5];
    encoder self = {0};
    int depth;

    (void)module;
    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_int64_from(values[2], "beside", &self.beside) < 0
        || dlpy_int_from(values[3], "depth", &depth) < 0) {
        return NULL;
    }
    if (!PyByteArray_Check(values[0])) {
        PyErr_Format(PyExc_TypeError, "out must be a bytearray, not %s",
                     Py_TYPE(values[0])->tp_name);
        return NULL;
    }
    self.out = values[0];
    self.other = values[4];
    int result = put(&self, values[1], depth);
    if (result == 0) {
        result = flush(&self);
    }
    dl_buffer_fini(&self.pending);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}
