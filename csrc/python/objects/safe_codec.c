/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encodes and decodes the frequent values of safe mode: None, bool, int, float, str,
 * bytes, list, tuple and dict, without their subclasses.  The format is described in
 * safe_codec.py.  Other values are passed to a function written in Python, which calls
 * back for nested values; safe_codec.py contains these functions. */
#include "python/objects/safe_codec.h"

#include <string.h>

#include "base/buffer.h"
#include "base/reader.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/parts.h"

/* Deeper than practical data, and well within the size of the stack. */
#define DEPTH_LIMIT 200

/* The longest encoding of a 64-bit count, with seven bits in each byte. */
#define COUNT_BYTES 10

/* Lists, tuples and dicts of one small value; to look for one more among so many takes
 * less time than to pickle it. */
#define CONTAINERS_LIMIT 32

/* Up to so many strings are keys whatever their hashes are. */
#define FEW_KEYS 16

/* Values are collected in a C buffer, as appending small pieces to a bytearray is slow,
 * and moved to the caller's bytearray before `other` is called, and at the end.
 * `other` may run any code, including code that changes the containers being traversed;
 * so lists and dicts are traversed as private copies.
 *
 * Without `other`, `pending` is all there is, in memory that the caller has lent, and
 * encoding ends, possibly without an exception, with what is no frequent value, has no
 * room there, or is a container that occurs twice. */
typedef struct encoder {
    dl_buffer pending; /* moved to `out` before any other code reads that */
    PyObject *out;     /* bytearray */
    PyObject *other;   /* appends a value of another kind to `out` */
    int64_t beside;    /* bytes objects of this length or more go to `other` */
    int containers;    /* how many were met, without `other` */
    PyObject *container[CONTAINERS_LIMIT]; /* borrowed, and only compared */
} encoder;

static int put_value(encoder *self, PyObject *value, int depth);

static int
flush_text(encoder *self)
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
    if (self->other == NULL || flush_text(self) < 0) {
        return -1;
    }
    PyObject *result = PyObject_CallFunction(self->other, "Oi", value, depth);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Returns false if so many bytes do not go into lent memory. */
static bool
has_room(const encoder *self, Py_ssize_t size)
{
    return self->other != NULL
           || (self->pending.is_lent
               && (size_t)size <= self->pending.capacity - self->pending.size);
}

/* Returns whether encoding without `other` continues with a list, tuple, dict or bytes.
 * Each item takes at least one byte. */
static bool
enter(encoder *self, PyObject *value)
{
    if (PyBytes_CheckExact(value)) {
        return true;
    }
    bool is_new = (PyList_CheckExact(value) || PyTuple_CheckExact(value)
                   || PyDict_CheckExact(value))
                  && self->containers < CONTAINERS_LIMIT
                  && has_room(self, PyObject_Size(value));
    for (int i = 0; is_new && i < self->containers; i++) {
        is_new = self->container[i] != value;
    }
    if (is_new) {
        self->container[self->containers++] = value;
    }
    return is_new;
}

/* A call for each few bytes would take longer than to copy them. */
static inline void
put(encoder *self, const void *data, size_t size)
{
    dl_buffer *pending = &self->pending;

    if (size > pending->capacity - pending->size) {
        dl_buffer_put(pending, (dl_bytes){data, size});
    } else if (size > 0) {
        memcpy(pending->data + pending->size, data, size);
        pending->size += size;
    }
}

static void
put_head(encoder *self, char letter, Py_ssize_t count)
{
    uint8_t head[1 + COUNT_BYTES];
    size_t left = (size_t)count;
    size_t size = 1;

    head[0] = (uint8_t)letter;
    for (; left > 127; left >>= 7) {
        head[size++] = (uint8_t)(left | 128);
    }
    head[size++] = (uint8_t)left;
    put(self, head, size);
}

static int
put_bytes(encoder *self, char letter, const char *data, Py_ssize_t size)
{
    if (!has_room(self, size)) {
        return -1;
    }
    put_head(self, letter, size);
    put(self, data, (size_t)size);
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
    size_t size = 1;
    uint8_t bytes[2 + sizeof bits]; /* after its letter and size */

    /* The second case is the smallest 64-bit integer, which negation does not
     * change. */
    if (overflow != 0 || magnitude >> 63 != 0) {
        return put_other(self, value, depth);
    }
    while (size < 8 && magnitude >> (8 * size - 1) != 0) {
        size++;
    }
    bytes[0] = 'i';
    bytes[1] = (uint8_t)size;
    for (size_t i = 0; i < size; i++) {
        bytes[2 + i] = (uint8_t)(bits >> (8 * i));
    }
    put(self, bytes, 2 + size);
    return 0;
}

static int
put_float(encoder *self, PyObject *value)
{
    double number = PyFloat_AS_DOUBLE(value);
    uint8_t bytes[1 + sizeof number];
    uint64_t bits;

    memcpy(&bits, &number, sizeof bits);
    bytes[0] = 'f';
    for (size_t i = 0; i < sizeof bits; i++) {
        bytes[1 + i] = (uint8_t)(bits >> (8 * i));
    }
    put(self, bytes, sizeof bytes);
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
    PyObject *encoded = has_room(self, PyUnicode_GET_LENGTH(value))
                            ? PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass")
                            : NULL;
    if (encoded == NULL) {
        return -1;
    }
    int result =
        put_bytes(self, 's', PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded));
    Py_DECREF(encoded);
    return result;
}

/* Prepends a step to the location `at` of an exception that has one; `format` prints
 * the step. */
static int
fail_at(const encoder *self, const char *format, PyObject *at)
{
    if (self->other == NULL) {
        return -1;
    }
    PyObject *error = dlpy_error_take();
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
    /* In place of that of an error of another kind, which has no location. */
    dlpy_error_restore(error);
    return -1;
}

/* A tuple's length cannot change meanwhile. */
static int
put_items(encoder *self, char letter, PyObject *items, int depth)
{
    Py_ssize_t count = PyTuple_GET_SIZE(items);

    put_head(self, letter, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (put_value(self, PyTuple_GET_ITEM(items, i), depth) < 0) {
            PyObject *at = PyLong_FromSsize_t(i);
            (void)(at != NULL && fail_at(self, "[%S]", at));
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
        if (put_value(self, key, depth) < 0) {
            result = fail_at(self, "[key %R]", key);
        } else if (put_value(self, item, depth) < 0) {
            result = fail_at(self, "[%R]", key);
        }
    }
    Py_DECREF(items);
    return result;
}

static int
put_constant(encoder *self, char letter)
{
    put(self, &letter, 1);
    return 0;
}

static int
put_value(encoder *self, PyObject *value, int depth)
{
    if (depth > DEPTH_LIMIT || !has_room(self, 1)) {
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
    if (self->other == NULL && !enter(self, value)) {
        return -1;
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

static PyObject *
put_plain(PyObject *Py_UNUSED(module), PyObject *const *values)
{
    encoder self = {0};
    int depth;

    if (dlpy_int64_from(values[2], "beside", &self.beside) < 0
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
    int result = put_value(&self, values[1], depth);
    if (result == 0) {
        result = flush_text(&self);
    }
    dl_buffer_fini(&self.pending);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

DLPY_PARSED(put_plain, "_put_plain", 5, "out", "value", "beside", "depth", "other")

Py_ssize_t
dlpy_data_encode(PyObject *value, uint8_t *memory, size_t room)
{
    encoder self; /* the list of containers needs no initial values */

    self.pending = (dl_buffer){.data = memory, .capacity = room, .is_lent = true};
    self.other = NULL;
    self.beside = INT64_MAX;
    self.containers = 0;
    bool is_done = put_value(&self, value, 0) == 0 && self.pending.is_lent
                   && !self.pending.has_failed;
    Py_ssize_t size = is_done ? (Py_ssize_t)self.pending.size : -1;
    if (!is_done) {
        dl_buffer_fini(&self.pending);
        PyErr_Clear();
    }
    return size;
}

/* The bytes come from a peer and may be malicious.  Every size is therefore compared
 * with the number of bytes left before it is used, memory is allocated only as values
 * arrive, the depth is limited, and the position that `other` returns is checked.  The
 * reader's end never moves.  Each value takes at least one byte, so there are no more
 * values than bytes. */
typedef struct decoder {
    const uint8_t *start;
    dl_reader reader; /* of all bytes; `next` is where the next value begins */
    /* Without these two, decoding ends, without an exception, where they are needed. */
    PyObject *other;  /* decodes a value of another kind at a position */
    PyObject *accept; /* accepts a list of keys that have one hash, or raises */
} decoder;

/* Decodes one value.  Returns 0, or -1 with an exception set. */
static int take_value(decoder *self, int depth, PyObject **value);

/* safe_codec.py reports to its caller that the bytes are malformed. */
static int
fail_decoding(const char *text)
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
            return fail_decoding("unexpected end of data");
        }
        if (i == COUNT_BYTES || (i == COUNT_BYTES - 1 && byte > 1)) {
            return fail_decoding("a count that is not terminated");
        }
        count |= (uint64_t)(byte & 127) << (7 * i);
    }
    if (count > dl_reader_left(&self->reader)) {
        return fail_decoding("unexpected end of data");
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
    PyObject *pair =
        self->other == NULL
            ? NULL
            : PyObject_CallFunction(self->other, "ni", (Py_ssize_t)(from - self->start),
                                    depth);

    if (pair == NULL) {
        return NULL;
    }
    if (PyArg_ParseTuple(pair, "On", &value, &at) && at >= 0 && at <= size) {
        self->reader.next = self->start + at;
        Py_INCREF(value);
    } else {
        value = NULL;
        (void)(PyErr_Occurred() || fail_decoding("an offset out of range"));
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
        fail_decoding("unexpected end of data");
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
        int result =
            take_value(self, depth, &item) < 0 ? -1 : PyList_Append(items, item);
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

typedef struct hashed {
    Py_hash_t hash;
    Py_ssize_t index;
} hashed;

static int
compare_hashes(const void *left, const void *right)
{
    const hashed *one = left;
    const hashed *two = right;

    return (one->hash > two->hash) - (one->hash < two->hash);
}

/* Passes the keys of `run` to `accept`. */
static int
check_run(PyObject *items, const hashed *run, size_t count, PyObject *accept)
{
    PyObject *keys = accept == NULL ? NULL : PyList_New((Py_ssize_t)count);

    if (keys == NULL) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *key = PyList_GET_ITEM(items, run[i].index);
        PyList_SET_ITEM(keys, (Py_ssize_t)i, Py_NewRef(key));
    }
    PyObject *result = PyObject_CallOneArg(accept, keys);
    Py_DECREF(keys);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Returns whether the keys, every `stride`-th item, are so few strings that to compare
 * each with all takes less time than to compare their hashes. */
static bool
are_few_texts(PyObject *items, Py_ssize_t stride)
{
    Py_ssize_t size = PyList_GET_SIZE(items);
    bool are_texts = size <= FEW_KEYS * stride;

    for (Py_ssize_t i = 0; are_texts && i < size; i += stride) {
        are_texts = PyUnicode_CheckExact(PyList_GET_ITEM(items, i));
    }
    return are_texts;
}

/* Checks that the keys, every `stride`-th item, can be put into a dict or set in a time
 * that grows with their number.  A sender that knows how numbers and tuples are hashed
 * can make any number of hashes equal, and then each key is compared with all before
 * it.  So the hashes are compared before any key is inserted.  Hashing a key may fail,
 * as for a list. */
static int
check_keys(PyObject *items, Py_ssize_t stride, PyObject *accept)
{
    if (are_few_texts(items, stride)) {
        return 0;
    }
    size_t count = (size_t)(PyList_GET_SIZE(items) / stride);
    hashed *all = PyMem_New(hashed, count);
    int result = 0;

    if (all == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count && result == 0; i++) {
        Py_ssize_t index = (Py_ssize_t)i * stride;
        all[i] = (hashed){PyObject_Hash(PyList_GET_ITEM(items, index)), index};
        result = all[i].hash == -1 ? -1 : 0;
    }
    if (result == 0 && count > 1) {
        qsort(all, count, sizeof *all, compare_hashes);
    }
    for (size_t first = 0, next; first < count && result == 0; first = next) {
        next = first + 1;
        while (next < count && all[next].hash == all[first].hash) {
            next++;
        }
        /* Two are compared once. */
        if (next - first > 2) {
            result = check_run(items, &all[first], next - first, accept);
        }
    }
    PyMem_Free(all);
    return result;
}

/* Decodes a key, then its value. */
static int
take_pair(decoder *self, PyObject *into, int depth)
{
    PyObject *key = NULL;
    PyObject *item = NULL;
    int result = take_value(self, depth, &key) < 0 || take_value(self, depth, &item) < 0
                         || PyList_Append(into, key) < 0
                     ? -1
                     : PyList_Append(into, item);

    Py_XDECREF(key);
    Py_XDECREF(item);
    return result;
}

/* Makes a dict of a list of keys and values. */
static PyObject *
dict_of(PyObject *items, PyObject *accept)
{
    PyObject *value = check_keys(items, 2, accept) < 0 ? NULL : PyDict_New();

    for (Py_ssize_t i = 0; value != NULL && i < PyList_GET_SIZE(items); i += 2) {
        if (PyDict_SetItem(value, PyList_GET_ITEM(items, i),
                           PyList_GET_ITEM(items, i + 1))
            < 0) {
            Py_CLEAR(value);
        }
    }
    return value;
}

static PyObject *
take_dict(decoder *self, int depth)
{
    PyObject *items = PyList_New(0);
    size_t length;
    int result = items == NULL || take_length(self, &length) < 0 ? -1 : 0;

    for (size_t i = 0; result == 0 && i < length; i++) {
        result = take_pair(self, items, depth);
    }
    PyObject *value = result < 0 ? NULL : dict_of(items, self->accept);
    Py_XDECREF(items);
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
take_value(decoder *self, int depth, PyObject **value)
{
    uint8_t letter;

    if (!dl_take_u8(&self->reader, &letter)) {
        return fail_decoding("unexpected end of data");
    }
    if (depth > DEPTH_LIMIT) {
        return fail_decoding("values are nested too deeply");
    }
    *value = take_kind(self, letter, depth);
    return *value == NULL ? -1 : 0;
}

static PyObject *
take_plain(PyObject *Py_UNUSED(module), PyObject *const *values)
{
    decoder self = {0};
    PyObject *result = NULL;
    PyObject *value;
    Py_buffer data;
    int64_t at;
    int depth;

    if (dlpy_int64_from(values[1], "at", &at) < 0
        || dlpy_int_from(values[2], "depth", &depth) < 0
        || PyObject_GetBuffer(values[0], &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    self.other = values[3];
    self.accept = values[4];
    if (at >= 0 && at <= data.len) {
        self.start = data.buf;
        self.reader = dl_reader_of((dl_bytes){data.buf, (size_t)data.len});
        /* Adding to a null pointer is undefined, even zero. */
        self.reader.next = at == 0 ? self.start : self.start + at;
        if (take_value(&self, depth, &value) == 0) {
            result = Py_BuildValue("(Nn)", value, self.reader.next - self.start);
        }
    } else {
        fail_decoding("an offset out of range");
    }
    PyBuffer_Release(&data);
    return result;
}

DLPY_PARSED(take_plain, "_take_plain", 5, "data", "at", "depth", "other", "accept")

PyObject *
dlpy_data_decode(dl_bytes data)
{
    decoder self = {.start = data.data, .reader = dl_reader_of(data)};
    PyObject *value = NULL;

    if (take_value(&self, 0, &value) < 0) {
        PyErr_Clear();
    } else if (dl_reader_left(&self.reader) > 0) {
        Py_CLEAR(value);
    }
    return value;
}

static PyObject *
check_list(PyObject *Py_UNUSED(module), PyObject *const *values)
{
    if (!PyList_CheckExact(values[0])) {
        PyErr_SetString(PyExc_TypeError, "keys must be a list");
        return NULL;
    }
    return check_keys(values[0], 1, values[1]) < 0 ? NULL : Py_NewRef(Py_None);
}

DLPY_PARSED(check_list, "_check_keys", 2, "keys", "accept")

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_put_plain", put_plain_call, DLPY_DOC__PUT_PLAIN),
    DLPY_FUNCTION("_take_plain", take_plain_call, DLPY_DOC__TAKE_PLAIN),
    DLPY_FUNCTION("_check_keys", check_list_call, DLPY_DOC__CHECK_KEYS),
    {0},
};

static const dlpy_number numbers[] = {{"_SAFE_DEPTH_LIMIT", DEPTH_LIMIT}, {0}};

const dlpy_part dlpy_safe_codec = {.functions = functions, .numbers = numbers};
