/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/reader.h"
#include "python/arguments.h"
#include "python/convert.h"
#include "python/parts.h"
#include "python/safe_codec.h"

/* The bytes come from a peer and may be malicious.  Every size is therefore compared
 * with the number of bytes left before it is used, memory is allocated only as values
 * arrive, the depth is limited, and the position that `other` returns is checked.  The
 * reader's end never moves.  Each value takes at least one byte, so there are no more
 * values than bytes. */
typedef struct decoder {
    const uint8_t *start;
    dl_reader reader; /* of all bytes; `next` is where the next value begins */
    PyObject *other;  /* decodes a value of another kind at a position */
} decoder;

/* Decodes one value.  Returns 0, or -1 with an exception set. */
static int take(decoder *self, int depth, PyObject **value);

/* safe_decode.py reports to its caller that the bytes are malformed. */
static int
fail(const char *text)
{
    PyErr_SetString(PyExc_ValueError, text);
    return -1;
}

/* Decodes a count of items that take at least one byte each. */
static int
take_length(decoder *self, size_t *length)
{
    uint64_t count = 0;
    uint8_t byte = 128;

    for (int i = 0; byte >= 128; i++) {
        if (!dl_take_u8(&self->reader, &byte)) {
            return fail("they end too early");
        }
        if (i == DLPY_SAFE_COUNT_BYTES
            || (i == DLPY_SAFE_COUNT_BYTES - 1 && byte > 1)) {
            return fail("a count that has no end");
        }
        count |= (uint64_t)(byte & 127) << (7 * i);
    }
    if (count > dl_reader_left(&self->reader)) {
        return fail("they end too early");
    }
    *length = (size_t)count;
    return 0;
}

static int
take_run(decoder *self, dl_bytes *run)
{
    if (take_length(self, &run->size) < 0) {
        return -1;
    }
    run->data = self->reader.next;
    self->reader.next += run->size;
    return 0;
}

/* Decodes a value of another kind, which begins with the letter at `from`.  `other` may
 * call back into this file with the same bytes and a decoder of its own, and returns
 * the position after the value. */
static PyObject *
take_other(decoder *self, const uint8_t *from, int depth)
{
    PyObject *value = NULL;
    Py_ssize_t size = self->reader.end - self->start;
    Py_ssize_t at = -1;
    PyObject *pair = PyObject_CallFunction(self->other, "ni",
                                           (Py_ssize_t)(from - self->start), depth);

    if (pair == NULL) {
        return NULL;
    }
    if (PyArg_ParseTuple(pair, "On", &value, &at) && at >= 0 && at <= size) {
        self->reader.next = self->start + at;
        Py_INCREF(value);
    } else {
        value = NULL;
        (void)(PyErr_Occurred() || fail("a place outside of them"));
    }
    Py_DECREF(pair);
    return value;
}

/* Integers of more than 64 bits are rare, and not all supported versions of Python have
 * a public function that creates them from bytes. */
static PyObject *
take_int(decoder *self, int depth)
{
    const uint8_t *from = self->reader.next - 1;
    dl_bytes run;
    uint64_t bits = 0;

    if (take_run(self, &run) < 0) {
        return NULL;
    }
    if (run.size > sizeof bits) {
        return take_other(self, from, depth);
    }
    for (size_t i = 0; i < run.size; i++) {
        bits |= (uint64_t)run.data[i] << (8 * i);
    }
    bool is_negative = run.size > 0 && run.data[run.size - 1] >= 128;
    if (is_negative && run.size < sizeof bits) {
        bits |= UINT64_MAX << (8 * run.size);
    }
    return PyLong_FromLongLong((long long)bits);
}

static PyObject *
take_float(decoder *self)
{
    uint64_t bits;
    double number;

    if (!dl_take_u64(&self->reader, &bits)) {
        fail("they end too early");
        return NULL;
    }
    memcpy(&number, &bits, sizeof number);
    return PyFloat_FromDouble(number);
}

static PyObject *
take_str(decoder *self)
{
    dl_bytes run;

    if (take_run(self, &run) < 0) {
        return NULL;
    }
    return PyUnicode_DecodeUTF8((const char *)run.data, (Py_ssize_t)run.size,
                                "surrogatepass");
}

static PyObject *
take_bytes(decoder *self)
{
    dl_bytes run;

    if (take_run(self, &run) < 0) {
        return NULL;
    }
    return PyBytes_FromStringAndSize((const char *)run.data, (Py_ssize_t)run.size);
}

/* The list grows as items are decoded: a length alone allocates no memory. */
static PyObject *
take_list(decoder *self, int depth)
{
    PyObject *items = PyList_New(0);
    size_t length;

    if (items == NULL || take_length(self, &length) < 0) {
        Py_XDECREF(items);
        return NULL;
    }
    for (size_t i = 0; i < length; i++) {
        PyObject *item = NULL;
        int result = take(self, depth, &item) < 0 ? -1 : PyList_Append(items, item);
        Py_XDECREF(item);
        if (result < 0) {
            Py_DECREF(items);
            return NULL;
        }
    }
    return items;
}

/* Decodes into a list first: no code may see a tuple that is incomplete. */
static PyObject *
take_tuple(decoder *self, int depth)
{
    PyObject *items = take_list(self, depth);

    if (items == NULL) {
        return NULL;
    }
    PyObject *value = PyList_AsTuple(items);
    Py_DECREF(items);
    return value;
}

/* Decodes a key, then its value.  Hashing the key may fail, as for a list. */
static int
take_pair(decoder *self, PyObject *into, int depth)
{
    PyObject *key = NULL;
    PyObject *item = NULL;
    int result = take(self, depth, &key) < 0 || take(self, depth, &item) < 0
                     ? -1
                     : PyDict_SetItem(into, key, item);

    Py_XDECREF(key);
    Py_XDECREF(item);
    return result;
}

static PyObject *
take_dict(decoder *self, int depth)
{
    PyObject *value = PyDict_New();
    size_t length;

    if (value == NULL || take_length(self, &length) < 0) {
        Py_XDECREF(value);
        return NULL;
    }
    for (size_t i = 0; i < length; i++) {
        if (take_pair(self, value, depth) < 0) {
            Py_DECREF(value);
            return NULL;
        }
    }
    return value;
}

static PyObject *
take_kind(decoder *self, uint8_t letter, int depth)
{
    switch (letter) {
    case 'N':
        return Py_NewRef(Py_None);
    case 'T':
        return Py_NewRef(Py_True);
    case 'F':
        return Py_NewRef(Py_False);
    case 'i':
        return take_int(self, depth);
    case 'f':
        return take_float(self);
    case 's':
        return take_str(self);
    case 'b':
        return take_bytes(self);
    case 'l':
        return take_list(self, depth + 1);
    case 't':
        return take_tuple(self, depth + 1);
    case 'd':
        return take_dict(self, depth + 1);
    default:
        return take_other(self, self->reader.next - 1, depth);
    }
}

static int
take(decoder *self, int depth, PyObject **value)
{
    uint8_t letter;

    if (!dl_take_u8(&self->reader, &letter)) {
        return fail("they end too early");
    }
    if (depth > DLPY_SAFE_DEPTH_LIMIT) {
        return fail("values are nested too deep");
    }
    *value = take_kind(self, letter, depth);
    return *value == NULL ? -1 : 0;
}

PyObject *
dlpy_take_plain(PyObject *module, PyObject *const *args, Py_ssize_t count,
                PyObject *keywords)
{
    static const dlpy_signature signature = {
        "_take_plain", 4, {"data", "at", "depth", "other"}};
    PyObject *values[4];
    decoder self = {0};
    PyObject *result = NULL;
    PyObject *value;
    Py_buffer data;
    int64_t at;
    int depth;

    (void)module;
    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_int64_from(values[1], "at", &at) < 0
        || dlpy_int_from(values[2], "depth", &depth) < 0
        || PyObject_GetBuffer(values[0], &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    self.other = values[3];
    if (at >= 0 && at <= data.len) {
        self.start = data.buf;
        self.reader = dl_reader_of((dl_bytes){data.buf, (size_t)data.len});
        /* Adding to a null pointer is undefined, even zero. */
        self.reader.next = at == 0 ? self.start : self.start + at;
        if (take(&self, depth, &value) == 0) {
            result = Py_BuildValue("(Nn)", value, self.reader.next - self.start);
        }
    } else {
        fail("a place outside of them");
    }
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef functions[] = {
    DLPY_FUNCTION(
        "_put_plain", dlpy_put_plain,
        "_put_plain($module, /, out, value, beside, depth, other)\n--\n\n"
        "Puts a value at the end of a bytearray; other(value, depth) puts what is of "
        "another kind, too deep, or bytes of the length `beside` or more."),
    DLPY_FUNCTION("_take_plain", dlpy_take_plain,
                  "_take_plain($module, /, data, at, depth, other)\n--\n\n"
                  "The value that begins there and where it ends; other(at, depth) "
                  "takes those of "
                  "other kinds.  ValueError if the bytes are malformed."),
    {0},
};

int
dlpy_add_safe_codec(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions) < 0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "_SAFE_DEPTH_LIMIT", DLPY_SAFE_DEPTH_LIMIT);
}
