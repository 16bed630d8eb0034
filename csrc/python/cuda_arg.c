/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/cuda_arg.h"

#include <string.h>

#include "pg/nccl/nccl_backend.h"
#include "python/convert.h"
#include "python/errors.h"

/* Returns the same code as for a NumPy array of these elements, except for the units of
 * times. */
static uint32_t
opaque_code_of(const char *type, size_t number)
{
    dl_opaque_text text = {0};

    switch (type[0]) {
    case 'S':
        return dl_opaque_code(DL_OPAQUE_BYTES, number);
    case 'U':
        return dl_opaque_code(DL_OPAQUE_CHARACTERS, number);
    case 'V':
        return dl_opaque_code(DL_OPAQUE_VOID, number);
    default:
        dl_opaque_put(&text, type);
        return dl_opaque_code_of_text(&text);
    }
}

/* Parses a typestr such as "<f4": byte order, kind and size of an element. */
static int
read_typestr(const char *text, dl_tensor *view)
{
    static const struct {
        const char *name;
        dl_dtype dtype;
    } types[] = {
        {"b1", DL_BOOL},      {"i1", DL_INT8},        {"i2", DL_INT16},
        {"i4", DL_INT32},     {"i8", DL_INT64},       {"u1", DL_UINT8},
        {"u2", DL_UINT16},    {"u4", DL_UINT32},      {"u8", DL_UINT64},
        {"f2", DL_FLOAT16},   {"f4", DL_FLOAT32},     {"f8", DL_FLOAT64},
        {"c8", DL_COMPLEX64}, {"c16", DL_COMPLEX128},
    };

    if (text == NULL || strlen(text) < 3 || text[0] == '>') {
        return -1;
    }
    view->item_size = (size_t)strtoul(text + 2, NULL, 10);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(text + 1, types[i].name) == 0) {
            view->dtype = types[i].dtype;
        }
    }
    if (view->dtype == DL_OPAQUE) {
        view->opaque_code = opaque_code_of(text + 1, view->item_size);
        view->item_size *= text[1] == 'U' ? sizeof(Py_UCS4) : 1;
    }
    return view->item_size == 0 ? -1 : 0;
}

/* Reads a tuple of numbers.  Returns -1 if the object is not one, or is too long. */
static int
read_numbers(PyObject *tuple, int64_t *numbers, int *count)
{
    if (tuple == NULL || !PyTuple_Check(tuple)
        || PyTuple_GET_SIZE(tuple) > DLPY_DLPACK_DIMENSIONS) {
        return -1;
    }
    *count = (int)PyTuple_GET_SIZE(tuple);
    for (int i = 0; i < *count; i++) {
        if (dlpy_int64_from(PyTuple_GET_ITEM(tuple, i), "a length or stride",
                            &numbers[i])
            < 0) {
            return -1;
        }
    }
    return 0;
}

/* Without strides the array is contiguous in C order. */
static int
read_layout(PyObject *interface, dl_tensor *view, dlpy_dimensions *dimensions)
{
    PyObject *strides = PyDict_GetItemString(interface, "strides");
    const int64_t *sizes = dimensions->shape;
    int64_t *steps = dimensions->strides;
    int count;

    if (read_numbers(PyDict_GetItemString(interface, "shape"), dimensions->shape,
                     &view->ndim)
        < 0) {
        return -1;
    }
    view->count = 1;
    view->is_contiguous = true;
    int64_t compact = (int64_t)view->item_size;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (sizes[i] < 0) {
            return -1;
        }
        view->count *= (size_t)sizes[i];
        steps[i] = compact;
        compact *= sizes[i];
    }
    view->shape = sizes;
    view->strides = steps;
    if (strides == NULL || strides == Py_None) {
        return 0;
    }
    int64_t given[DLPY_DLPACK_DIMENSIONS];
    if (read_numbers(strides, given, &count) < 0 || count != view->ndim) {
        return -1;
    }
    for (int i = 0; i < count; i++) {
        view->is_contiguous =
            view->is_contiguous
            && (given[i] == steps[i] || sizes[i] == 1 || view->count == 0);
        steps[i] = given[i];
    }
    return 0;
}

/* Converts the number of a stream as other libraries write it. */
static int
stream_from(PyObject *number, void **stream)
{
    *stream = number == NULL ? NULL : PyLong_AsVoidPtr(number);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

/* The interface forbids stream 0; 1 and 2 are the default streams, as in CUDA. */
static int
read_pointer(PyObject *interface, dl_tensor *view)
{
    PyObject *data = PyDict_GetItemString(interface, "data");
    PyObject *stream = PyDict_GetItemString(interface, "stream");

    if (data == NULL || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2) {
        return -1;
    }
    view->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
    view->is_writable = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1)) == 0;
    if (PyErr_Occurred() != NULL) {
        return -1;
    }
    return stream == Py_None || stream_from(stream, &view->stream) == 0 ? 0 : -1;
}

/* Any missing or unknown entry is an error: a guess would corrupt memory. */
static int
read_interface(PyObject *interface, dl_tensor *view, dlpy_dimensions *dimensions)
{
    *view = (dl_tensor){.device = DL_CUDA};
    if (!PyDict_Check(interface)) {
        return -1;
    }
    PyObject *type = PyDict_GetItemString(interface, "typestr");
    PyObject *mask = PyDict_GetItemString(interface, "mask");
    if (type == NULL || !PyUnicode_Check(type) || (mask != NULL && mask != Py_None)) {
        return -1;
    }
    return read_typestr(PyUnicode_AsUTF8(type), view) < 0
                   || read_layout(interface, view, dimensions) < 0
                   || read_pointer(interface, view) < 0
               ? -1
               : 0;
}

int
dlpy_cuda_view(PyObject *object, const char *parameter, dl_tensor *view,
               dlpy_dimensions *dimensions, PyObject **owner)
{
    *owner = PyObject_GetAttrString(object, "__cuda_array_interface__");
    if (*owner == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    if (read_interface(*owner, view, dimensions) < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "`%s` has a __cuda_array_interface__ that makes no sense here "
                     "(a masked array, bytes in foreign order, more than %d "
                     "dimensions, a negative length, or a missing entry): %R",
                     parameter, DLPY_DLPACK_DIMENSIONS, *owner);
        return -1;
    }
    dl_status status = dl_nccl_device_of(view->data, &view->device_index);
    if (status != DL_OK) {
        PyErr_Format(PyExc_ValueError, "`%s`: %s", parameter, dl_last_error()->text);
        return -1;
    }
    return 1;
}
