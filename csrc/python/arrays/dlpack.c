/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/arrays/dlpack.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "python/module/convert.h"
#include "python/module/free_threading.h"
#include "tensor/strided.h"

static bool
is_inside(const char *module, const char *package)
{
    size_t size = strlen(package);

    return strncmp(module, package, size) == 0
           && (module[size] == '\0' || module[size] == '.');
}

static dlpy_library
library_of_one(PyObject *type)
{
    PyObject *name = PyObject_GetAttrString(type, "__module__");
    const char *text =
        name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    dlpy_library library = DLPY_LIBRARY_OTHER;

    if (text == NULL) {
        PyErr_Clear();
    } else if (is_inside(text, "torch")) {
        library = DLPY_LIBRARY_TORCH;
    } else if (is_inside(text, "cupy")) {
        library = DLPY_LIBRARY_CUPY;
    }
    Py_XDECREF(name);
    return library;
}

/* Decides by the modules of the type and of its base classes: a user's class derived
 * from torch.Tensor belongs to torch. */
static dlpy_library
library_of(PyTypeObject *type)
{
    PyObject *bases = type->tp_mro;
    Py_ssize_t count = bases == NULL ? 0 : PyTuple_GET_SIZE(bases);
    dlpy_library library = DLPY_LIBRARY_OTHER;

    for (Py_ssize_t i = 0; i < count && library == DLPY_LIBRARY_OTHER; i++) {
        library = library_of_one(PyTuple_GET_ITEM(bases, i));
    }
    return library;
}

static const struct {
    uint8_t code;
    uint8_t bits;
    dl_dtype dtype;
} dtypes[] = {
    {0, 8, DL_INT8},           {0, 16, DL_INT16},       {0, 32, DL_INT32},
    {0, 64, DL_INT64},         {1, 8, DL_UINT8},        {1, 16, DL_UINT16},
    {1, 32, DL_UINT32},        {1, 64, DL_UINT64},      {2, 16, DL_FLOAT16},
    {2, 32, DL_FLOAT32},       {2, 64, DL_FLOAT64},     {4, 16, DL_BFLOAT16},
    {5, 64, DL_COMPLEX64},     {5, 128, DL_COMPLEX128}, {6, 8, DL_BOOL},
    {10, 8, DL_FLOAT8_E4M3FN}, {12, 8, DL_FLOAT8_E5M2},
};

/* Types that are not in the table are transferred as opaque bytes. */
static dl_dtype
dtype_of(const dlpack_tensor *tensor)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].code == tensor->code && dtypes[i].bits == tensor->bits
            && tensor->lanes == 1) {
            return dtypes[i].dtype;
        }
    }
    return DL_OPAQUE;
}

/* Converts strides to bytes.  Old libraries may leave out the strides of a contiguous
 * array. */
static void
fill_strides(const dlpack_tensor *tensor, size_t item_size, int64_t *strides)
{
    int64_t compact = 1;

    for (int i = tensor->ndim - 1; i >= 0; i--) {
        int64_t stride = tensor->strides == NULL ? compact : tensor->strides[i];
        /* One that overflows stays out of the address space and is refused as such. */
        if (__builtin_mul_overflow(stride, (int64_t)item_size, &strides[i])) {
            strides[i] = stride < 0 ? INT64_MIN : INT64_MAX;
        }
        compact *= tensor->shape[i];
    }
}

/* Returns whether typed loads are possible.  A complex number is aligned like its
 * halves. */
static bool
is_aligned(const dl_tensor *view)
{
    bool is_complex = view->dtype == DL_COMPLEX64 || view->dtype == DL_COMPLEX128;
    size_t alignment = is_complex ? view->item_size / 2 : view->item_size;

    return view->dtype == DL_OPAQUE || (uintptr_t)view->data % alignment == 0;
}

/* Returns the code that a NumPy array of the type has, where both libraries know the
 * type. */
static uint32_t
opaque_code_of(const dlpack_tensor *tensor)
{
    static const struct {
        uint8_t code;
        uint8_t bits;
        const char *name;
    } named[] = {
        {5, 32, "complex32"},       {7, 8, "float8_e3m4"},
        {8, 8, "float8_e4m3"},      {9, 8, "float8_e4m3b11fnuz"},
        {11, 8, "float8_e4m3fnuz"}, {13, 8, "float8_e5m2fnuz"},
        {14, 8, "float8_e8m0fnu"},
    };

    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (named[i].code == tensor->code && named[i].bits == tensor->bits
            && tensor->lanes == 1) {
            return dl_opaque_named(named[i].name);
        }
    }
    return dl_opaque_code(DL_OPAQUE_DLPACK, (size_t)tensor->lanes << 16
                                                | (size_t)tensor->code << 8
                                                | tensor->bits);
}

static bool
is_on_cuda(const dlpack_tensor *tensor)
{
    return tensor->device_type == DLPACK_CUDA
           || tensor->device_type == DLPACK_CUDA_MANAGED;
}

static int
check_place(const dlpack_tensor *tensor, const char *parameter)
{
    if (tensor->device_type != DLPACK_CPU && tensor->device_type != DLPACK_CUDA_HOST
        && tensor->device_type != DLPACK_ROCM_HOST && !is_on_cuda(tensor)) {
        PyErr_Format(PyExc_ValueError,
                     "`%s` is on a device of DLPack type %d; only memory of the CPU "
                     "(type 1) and of CUDA (type 2) is supported",
                     parameter, (int)tensor->device_type);
        return -1;
    }
    if (tensor->ndim < 0 || tensor->ndim > DLPY_DLPACK_DIMENSIONS) {
        PyErr_Format(PyExc_ValueError, "`%s` has %d dimensions, more than %d",
                     parameter, (int)tensor->ndim, DLPY_DLPACK_DIMENSIONS);
        return -1;
    }
    if (tensor->ndim > 0 && tensor->shape == NULL) {
        PyErr_Format(PyExc_ValueError, "`%s` has no shape: its pointer is NULL",
                     parameter);
        return -1;
    }
    int bits = tensor->bits * tensor->lanes;
    if (bits == 0 || bits % 8 != 0) {
        PyErr_Format(PyExc_ValueError, "`%s` has elements of %d bits, not whole bytes",
                     parameter, bits);
        return -1;
    }
    return 0;
}

/* Converts the struct to a view.  The caller sets `is_writable`, which the struct does
 * not tell.  Returns 0, or -1 with an exception set. */
static int
read_tensor(const dlpack_tensor *tensor, const char *parameter, dl_tensor *view,
            dlpy_dimensions *dimensions)
{
    size_t count = 1;
    int64_t size = tensor->bits * tensor->lanes / 8; /* zero lengths count as 1 */

    if (check_place(tensor, parameter) < 0) {
        return -1;
    }
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, "`%s` has a length of %lld", parameter,
                         (long long)tensor->shape[i]);
            return -1;
        }
        if (tensor->shape[i] > 0
            && __builtin_mul_overflow(size, tensor->shape[i], &size)) {
            PyErr_Format(PyExc_ValueError, "`%s` is larger than any memory", parameter);
            return -1;
        }
        count *= (size_t)tensor->shape[i];
    }
    if (tensor->data == NULL && count > 0) {
        PyErr_Format(PyExc_ValueError, "`%s` has no data: its pointer is NULL",
                     parameter);
        return -1;
    }
    *view = (dl_tensor){
        .data = tensor->data == NULL ? NULL : tensor->data + tensor->byte_offset,
        .count = count,
        .item_size = (size_t)tensor->bits * tensor->lanes / 8,
        .dtype = dtype_of(tensor),
        .device = is_on_cuda(tensor) ? DL_CUDA : DL_CPU,
        .device_index = tensor->device_index,
        .ndim = tensor->ndim,
        .is_writable = true,
        .shape = dimensions->shape,
        .strides = dimensions->strides,
    };
    if (tensor->ndim > 0) {
        memcpy(dimensions->shape, tensor->shape,
               (size_t)tensor->ndim * sizeof *tensor->shape);
    }
    if (view->dtype == DL_OPAQUE) {
        view->opaque_code = opaque_code_of(tensor);
    }
    fill_strides(tensor, view->item_size, dimensions->strides);
    view->is_contiguous = dl_tensor_is_one_run(view) && is_aligned(view);
    return 0;
}

/* Returns the struct in a capsule of either kind, and whether the elements may be
 * written to.  A capsule from before DLPack 1.0 cannot tell the latter, and JAX uses
 * such capsules for immutable arrays, whose memory may be shared.  An old capsule
 * therefore counts as writable only if its library makes all its arrays writable. */
static const dlpack_tensor *
open_capsule(PyObject *capsule, PyTypeObject *type, const char *parameter,
             bool *is_writable)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        *is_writable = library_of(type) != DLPY_LIBRARY_OTHER;
        return PyCapsule_GetPointer(capsule, "dltensor");
    }
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        bool is_capsule = PyCapsule_CheckExact(capsule);
        PyErr_Format(PyExc_TypeError,
                     "`%s`: __dlpack__() of %s has returned %s%s, not a tensor of "
                     "DLPack",
                     parameter, type->tp_name,
                     is_capsule ? "a capsule that is used or of something else"
                                : "an object of type ",
                     is_capsule ? "" : Py_TYPE(capsule)->tp_name);
        return NULL;
    }
    const dlpack_versioned *managed =
        PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->major != 1) {
        PyErr_Format(PyExc_BufferError, "`%s` uses version %u of DLPack, not 1",
                     parameter, (unsigned)managed->major);
        return NULL;
    }
    *is_writable =
        (managed->flags & (DLPACK_FLAG_READ_ONLY | DLPACK_FLAG_IS_COPY)) == 0;
    return &managed->tensor;
}

/* Returns whether accesses to the memory are ordered by streams; -1 with an exception
 * set. */
static int
is_in_cuda_memory(PyObject *object)
{
    PyObject *told = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    int type, index;

    if (told == NULL) {
        return dlpy_forgive_attribute();
    }
    bool is_pair = PyTuple_Check(told) && PyArg_ParseTuple(told, "ii", &type, &index);
    Py_DECREF(told);
    if (!is_pair) {
        /* Ignored: the capsule tells the device, too. */
        PyErr_Clear();
        return 0;
    }
    return type == DLPACK_CUDA || type == DLPACK_CUDA_MANAGED;
}

/* Calls `method` and drops the reference to `keywords`; NULL there means that it could
 * not be created. */
static PyObject *
export_with(PyObject *method, PyObject *keywords)
{
    PyObject *nothing = keywords == NULL ? NULL : PyTuple_New(0);
    PyObject *capsule =
        nothing == NULL ? NULL : PyObject_Call(method, nothing, keywords);

    Py_XDECREF(keywords);
    Py_XDECREF(nothing);
    return capsule;
}

/* Requests a versioned capsule, the only kind that tells whether the memory may be
 * written to.  Libraries from before DLPack 1.0 do not know the parameter, and some do
 * not know the one for a stream.
 *
 * Without a stream, producers of CUDA memory make the legacy default stream wait, which
 * breaks a capture. */
static PyObject *
export_capsule(PyObject *object, PyObject *method, intptr_t stream)
{
    int has_stream = is_in_cuda_memory(object);
    Py_ssize_t number = stream;

    if (has_stream < 0) {
        return NULL;
    }
    PyObject *capsule =
        export_with(method, has_stream ? Py_BuildValue("{s(ii)sn}", "max_version", 1, 0,
                                                       "stream", number)
                                       : Py_BuildValue("{s(ii)}", "max_version", 1, 0));
    if (capsule == NULL && has_stream && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = export_with(method, Py_BuildValue("{sn}", "stream", number));
    }
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_CallNoArgs(method);
    }
    return capsule;
}

/* Puts the name of the parameter before the text of an exception that the library of
 * the array has raised, and for torch's sparse tensors what to pass. */
static void
name_parameter(const char *parameter)
{
    PyObject *const types[] = {PyExc_BufferError, PyExc_NotImplementedError,
                               PyExc_RuntimeError, PyExc_TypeError, PyExc_ValueError};
    PyObject *error = dlpy_error_take();

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        bool is_same = (PyObject *)Py_TYPE(error) == types[i];
        PyObject *text = is_same ? PyObject_Str(error) : NULL;
        const char *words = text == NULL ? NULL : PyUnicode_AsUTF8(text);
        if (words != NULL) {
            bool is_sparse = strstr(words, "torch.strided") != NULL;
            PyErr_Format(types[i], "`%s`: %s%s%s%s", parameter, words,
                         is_sparse ? "; pass " : "", is_sparse ? parameter : "",
                         is_sparse ? ".to_dense()" : "");
            Py_DECREF(text);
            Py_DECREF(error);
            return;
        }
        Py_XDECREF(text);
    }
    dlpy_error_restore(error);
}

int
dlpy_dlpack_view(PyObject *object, const char *parameter, intptr_t stream,
                 dl_tensor *view, dlpy_dimensions *dimensions, PyObject **capsule)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    bool is_writable;

    *capsule = NULL;
    if (method == NULL) {
        if (dlpy_forgive_attribute() == 0) {
            return 0;
        }
        name_parameter(parameter);
        return -1;
    }
    /* The capsule is not renamed: the destructor of an unconsumed capsule frees the
     * memory, so this file need not call the deleter. */
    *capsule = export_capsule(object, method, stream);
    Py_DECREF(method);
    if (*capsule == NULL) {
        name_parameter(parameter);
        return -1;
    }
    const dlpack_tensor *tensor =
        open_capsule(*capsule, Py_TYPE(object), parameter, &is_writable);
    if (tensor == NULL || read_tensor(tensor, parameter, view, dimensions) < 0) {
        return -1;
    }
    view->is_writable = is_writable;
    view->ignores_streams = stream != DLPY_DLPACK_NO_STREAM;
    return 1;
}

#define SEEN 4

/* The types seen last; most programs use one or two.  The cache holds references, so
 * that no other type can be created at the same address.  A table lives as long as the
 * process. */
static struct {
    dlpy_version version;
    struct {
        PyTypeObject *type;
        const dlpack_exchange *table; /* NULL if the type has none */
        dlpy_library library;
    } types[SEEN];
} seen;

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

/* While another thread remembers a type, this one is not remembered. */
static void
remember_type(PyTypeObject *type, const dlpack_exchange *table, dlpy_library library)
{
    if (!dlpy_version_begin(&seen.version)) {
        return;
    }
    PyTypeObject *forgotten = seen.types[SEEN - 1].type;
    for (int i = SEEN - 1; i > 0; i--) {
        DLPY_STORE(seen.types[i].type, seen.types[i - 1].type);
        DLPY_STORE(seen.types[i].table, seen.types[i - 1].table);
        DLPY_STORE(seen.types[i].library, seen.types[i - 1].library);
    }
    DLPY_STORE(seen.types[0].type, (PyTypeObject *)Py_NewRef((PyObject *)type));
    DLPY_STORE(seen.types[0].table, table);
    DLPY_STORE(seen.types[0].library, library);
    dlpy_version_end(&seen.version);
    /* Must come last: freeing a type may run Python code that calls this function. */
    Py_XDECREF(forgotten);
}

const dlpack_exchange *
dlpy_exchange_find(PyTypeObject *type, dlpy_library *library)
{
    unsigned version = dlpy_version_read(&seen.version);

    for (int i = 0; i < SEEN; i++) {
        if (DLPY_LOAD(seen.types[i].type) != type) {
            continue;
        }
        const dlpack_exchange *found = DLPY_LOAD(seen.types[i].table);
        *library = DLPY_LOAD(seen.types[i].library);
        if (dlpy_version_is(&seen.version, version)) {
            return found;
        }
        break;
    }
    const dlpack_exchange *table = table_of(type);
    *library = library_of(type);
    remember_type(type, table, *library);
    return table;
}

static int
answers_yes(PyObject *object, const char *question)
{
    PyObject *answer = PyObject_CallMethod(object, question, NULL);

    if (answer == NULL) {
        return dlpy_forgive_attribute();
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
    if (read_tensor(&tensor, parameter, view, dimensions) < 0) {
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
