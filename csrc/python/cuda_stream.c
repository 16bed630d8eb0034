/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/cuda_arg.h"

#include "python/errors.h"

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
    PyObject *module =
        PyDict_GetItemString(PyImport_GetModuleDict(), is_torch ? "torch" : "cupy");
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

int
dlpy_cuda_stream_in_use(void **stream)
{
    PyObject *modules = PyImport_GetModuleDict();
    dlpy_cuda_origin origin = {.library = DLPY_LIBRARY_OTHER};

    if (PyDict_GetItemString(modules, "torch") != NULL) {
        origin.library = DLPY_LIBRARY_TORCH;
    } else if (PyDict_GetItemString(modules, "cupy") != NULL) {
        origin.library = DLPY_LIBRARY_CUPY;
    }
    /* NULL is the default stream, the current stream of a new thread in torch and
     * CuPy. */
    *stream = NULL;
    return dlpy_cuda_current_stream(&origin, stream) < 0 ? -1 : 0;
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
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
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
unwrap(PyObject *stream)
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
    PyObject *object = unwrap(stream);

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
