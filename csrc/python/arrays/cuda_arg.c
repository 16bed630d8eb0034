/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/arrays/cuda_arg.h"

#include <string.h>

#include "pg/nccl/nccl_backend.h"
#include "python/module/convert.h"
#include "python/module/free_threading.h"
#include "tensor/strided.h"

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
    int64_t compact = (int64_t)view->item_size;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (sizes[i] < 0) {
            return -1;
        }
        view->count *= (size_t)sizes[i];
        steps[i] = compact;
        if (sizes[i] > 0 && __builtin_mul_overflow(compact, sizes[i], &compact)) {
            return -1;
        }
    }
    if (strides != NULL && strides != Py_None
        && (read_numbers(strides, steps, &count) < 0 || count != view->ndim)) {
        return -1;
    }
    view->shape = sizes;
    view->strides = steps;
    view->is_contiguous = dl_tensor_is_one_run(view);
    return 0;
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
    if (PyErr_Occurred() == NULL && stream != NULL && stream != Py_None) {
        view->stream = PyLong_AsVoidPtr(stream);
    }
    return PyErr_Occurred() == NULL ? 0 : -1;
}

/* Any missing or unknown entry is an error: a guess would corrupt memory. */
static int
read_entries(PyObject *interface, dl_tensor *view, dlpy_dimensions *dimensions)
{
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

/* Reads a copy, whose entries are there as long as it is. */
static int
read_interface(PyObject *interface, dl_tensor *view, dlpy_dimensions *dimensions)
{
    *view = (dl_tensor){.device = DL_CUDA};
    PyObject *copy = PyDict_Check(interface) ? PyDict_Copy(interface) : NULL;
    int result = copy == NULL ? -1 : read_entries(copy, view, dimensions);

    Py_XDECREF(copy);
    return result;
}

int
dlpy_cuda_view(PyObject *object, const char *parameter, dl_tensor *view,
               dlpy_dimensions *dimensions, PyObject **owner)
{
    *owner = PyObject_GetAttrString(object, "__cuda_array_interface__");
    if (*owner == NULL) {
        return dlpy_forgive_attribute();
    }
    if (read_interface(*owner, view, dimensions) < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "`%s` has a __cuda_array_interface__ that is not supported (a "
                     "masked array, non-native byte order, more than %d dimensions, a "
                     "negative length, or a missing entry): %R",
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

typedef struct choice {
    bool is_set;
    bool is_used; /* an array has used the stream since it was set */
    void *stream;
} choice;

/* Both are per thread, as the current streams of the libraries are.  `chosen` applies
 * to a block of calls; `named` applies to one call and takes precedence. */
static _Thread_local choice chosen;
static _Thread_local choice named;

static _Thread_local dlpy_cuda_origin last;

dlpy_cuda_origin
dlpy_cuda_last_origin(void)
{
    return last;
}

/* Returns torch.cuda.current_stream(device).cuda_stream or
 * cupy.cuda.get_current_stream().ptr as a new reference.  Returns NULL without an
 * exception if the module is not imported. */
static PyObject *
ask_library(const dlpy_cuda_origin *origin)
{
    bool is_torch = origin->library == DLPY_LIBRARY_TORCH;
    PyObject *module = dlpy_imported_module(is_torch ? "torch" : "cupy");
    PyObject *cuda = module == NULL ? NULL : PyObject_GetAttrString(module, "cuda");
    PyObject *stream = NULL;
    PyObject *number = NULL;

    if (cuda != NULL) {
        stream = is_torch
                     ? PyObject_CallMethod(cuda, "current_stream", "i", origin->device)
                     : PyObject_CallMethod(cuda, "get_current_stream", NULL);
    }
    if (stream != NULL) {
        number = PyObject_GetAttrString(stream, is_torch ? "cuda_stream" : "ptr");
    }
    Py_XDECREF(cuda);
    Py_XDECREF(stream);
    Py_XDECREF(module);
    return number;
}

int
dlpy_cuda_current_stream(const dlpy_cuda_origin *origin, void **stream)
{
    if (chosen.is_set) {
        *stream = chosen.stream;
        return 0;
    }
    if (origin->table != NULL && origin->table->current_stream != NULL) {
        return origin->table->current_stream(DLPACK_CUDA, origin->device, stream);
    }
    *stream = origin->stream;
    if (origin->library == DLPY_LIBRARY_OTHER) {
        return 1;
    }
    PyObject *number = ask_library(origin);
    if (number == NULL && PyErr_Occurred() == NULL) {
        /* The module is partially imported, or not under its usual name. */
        return 0;
    }
    *stream = number == NULL ? NULL : PyLong_AsVoidPtr(number);
    Py_XDECREF(number);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

static bool
is_imported(const char *name)
{
    PyObject *module = dlpy_imported_module(name);

    Py_XDECREF(module);
    return module != NULL;
}

int
dlpy_cuda_stream_in_use(void **stream)
{
    dlpy_cuda_origin origin = {.library = DLPY_LIBRARY_OTHER};

    if (is_imported("torch")) {
        origin.library = DLPY_LIBRARY_TORCH;
    } else if (is_imported("cupy")) {
        origin.library = DLPY_LIBRARY_CUPY;
    }
    /* NULL is the default stream, the current stream of a new thread in torch and
     * CuPy. */
    *stream = NULL;
    return dlpy_cuda_current_stream(&origin, stream) < 0 ? -1 : 0;
}

intptr_t
dlpy_cuda_export_stream(PyObject *object)
{
    dlpy_library library;
    const dlpack_exchange *table = dlpy_exchange_find(Py_TYPE(object), &library);
    const choice *wanted = named.is_set ? &named : &chosen;

    if (library != DLPY_LIBRARY_OTHER
        || (table != NULL && table->current_stream != NULL)) {
        return DLPY_DLPACK_NO_STREAM;
    }
    return wanted->is_set && wanted->stream != NULL ? (intptr_t)wanted->stream
                                                    : DLPY_DLPACK_DEFAULT_STREAM;
}

int
dlpy_cuda_give_stream(PyObject *object, dl_tensor *view)
{
    if (named.is_set) {
        /* wait() on a Work orders the named stream, too. */
        named.is_used = true;
        view->stream = named.stream;
        last = (dlpy_cuda_origin){.device = view->device_index, .stream = named.stream};
        return 0;
    }
    last = (dlpy_cuda_origin){.device = view->device_index, .stream = view->stream};
    last.table = dlpy_exchange_find(Py_TYPE(object), &last.library);
    return dlpy_cuda_current_stream(&last, &view->stream);
}

/* Replaces `*object` by its attribute `name`.  Returns 1, 0 if it has no such
 * attribute, or -1 with an exception set. */
static int
look_inside(PyObject **object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(*object, name);

    if (found == NULL) {
        return dlpy_forgive_attribute();
    }
    Py_SETREF(*object, found);
    return 1;
}

/* Calls `__cuda_stream__`, the protocol of CUDA's own Python packages, which returns
 * (version, number). */
static int
ask_protocol(PyObject **object)
{
    int found = look_inside(object, "__cuda_stream__");

    if (found <= 0) {
        return found;
    }
    PyObject *told = PyObject_CallNoArgs(*object);
    PyObject *number = told == NULL ? NULL : PySequence_GetItem(told, 1);
    Py_XDECREF(told);
    Py_XSETREF(*object, number);
    return number == NULL ? -1 : 1;
}

/* torch's streams have `cuda_stream`, CuPy's `ptr`, and numba's `handle`, a ctypes
 * pointer with a `value`. */
static PyObject *
unwrap_stream(PyObject *stream)
{
    static const char *const names[] = {"cuda_stream", "ptr", "handle", "value"};
    PyObject *object = Py_NewRef(stream);
    int found = PyLong_CheckExact(object) ? 1 : ask_protocol(&object);

    for (size_t i = 0; found == 0 && i < sizeof names / sizeof *names; i++) {
        int step = look_inside(&object, names[i]);
        found = step < 0 ? -1 : 0;
    }
    if (found < 0) {
        Py_CLEAR(object);
    }
    return object;
}

static int
number_of(PyObject *stream, void **number)
{
    PyObject *object = unwrap_stream(stream);

    if (object == NULL) {
        return -1;
    }
    /* ctypes returns None for a NULL pointer. */
    bool is_number = object == Py_None || PyIndex_Check(object);
    PyObject *whole = is_number && object != Py_None ? PyNumber_Index(object) : NULL;
    *number = whole == NULL ? NULL : PyLong_AsVoidPtr(whole);
    Py_XDECREF(whole);
    Py_DECREF(object);
    if (!is_number) {
        PyErr_Format(PyExc_TypeError,
                     "a stream is the number of a cudaStream_t, or an object that has "
                     "it as `cuda_stream`, `ptr`, `handle` or `value`, not %R",
                     stream);
    }
    return PyErr_Occurred() == NULL ? 0 : -1;
}

int
dlpy_cuda_name_stream(PyObject *stream)
{
    named = (choice){.is_set = true};
    int result = number_of(stream, &named.stream);
    named.is_set = result == 0;
    return result;
}

bool
dlpy_cuda_unname_stream(void)
{
    named.is_set = false;
    return named.is_used;
}

PyObject *
dlpy_set_cuda_stream(PyObject *Py_UNUSED(module), PyObject *stream)
{
    PyObject *before =
        chosen.is_set ? PyLong_FromVoidPtr(chosen.stream) : Py_NewRef(Py_None);
    void *wanted = NULL;

    if (before == NULL || (stream != Py_None && number_of(stream, &wanted) < 0)) {
        Py_XDECREF(before);
        return NULL;
    }
    chosen.is_set = stream != Py_None;
    chosen.stream = wanted;
    return before;
}
