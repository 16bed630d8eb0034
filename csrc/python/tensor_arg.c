/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/tensor_arg.h"

#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include "python/cuda_arg.h"
#include "python/dlpack_exchange.h"

/* Shapes and strides are lent to the core as they lie in the array. */
_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "npy_intp is int64_t");

static int
import_numpy(void)
{
    if (PyArray_API == NULL) {
        import_array1(-1);
    }
    return 0;
}

/* 1: NumPy is in use, its interface is at hand.  0: not imported by anybody, so nothing
 * here can be an ndarray.  -1: an exception is set. */
static int
find_numpy(void)
{
    if (PyArray_API != NULL) {
        return 1;
    }
    PyObject *modules = PyImport_GetModuleDict();
    if (PyDict_GetItemString(modules, "numpy") == NULL) {
        return 0;
    }
    return import_numpy() < 0 ? -1 : 1;
}

/* Types that other packages add to NumPy, known by name: numbers are given out at run
 * time, in the order of imports. */
static dl_dtype
dtype_of_name(const char *name)
{
    static const dl_dtype known[] = {DL_BFLOAT16, DL_FLOAT8_E4M3FN, DL_FLOAT8_E5M2};
    const char *dot = strrchr(name, '.');
    const char *last = dot == NULL ? name : dot + 1;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(last, dl_dtype_name(known[i])) == 0) {
            return known[i];
        }
    }
    return DL_OPAQUE;
}

static dl_dtype
dtype_of(const PyArray_Descr *descr)
{
    static const uint8_t numbers[NPY_HALF + 1] = {
        [NPY_BOOL] = DL_BOOL,        [NPY_BYTE] = DL_INT8,
        [NPY_UBYTE] = DL_UINT8,      [NPY_SHORT] = DL_INT16,
        [NPY_USHORT] = DL_UINT16,    [NPY_INT] = DL_INT32,
        [NPY_UINT] = DL_UINT32,      [NPY_LONG] = DL_INT64,
        [NPY_ULONG] = DL_UINT64,     [NPY_LONGLONG] = DL_INT64,
        [NPY_ULONGLONG] = DL_UINT64, [NPY_HALF] = DL_FLOAT16,
        [NPY_FLOAT] = DL_FLOAT32,    [NPY_DOUBLE] = DL_FLOAT64,
        [NPY_CFLOAT] = DL_COMPLEX64, [NPY_CDOUBLE] = DL_COMPLEX128,
    };

    if (descr->type_num >= 0 && descr->type_num <= NPY_HALF) {
        return (dl_dtype)numbers[descr->type_num];
    }
    return dtype_of_name(descr->typeobj->tp_name);
}

_Static_assert(sizeof(long) == 8, "NPY_LONG is int64");

static int
check_dtype(PyArrayObject *array, const char *parameter)
{
    PyArray_Descr *descr = PyArray_DESCR(array);

    if (PyDataType_FLAGCHK(descr, NPY_ITEM_HASOBJECT)) {
        PyErr_Format(PyExc_TypeError,
                     "`%s` has dtype %S: its elements are references into this "
                     "process, which mean nothing to others",
                     parameter, descr);
        return -1;
    }
    if (PyArray_ISBYTESWAPPED(array)) {
        PyErr_Format(PyExc_ValueError,
                     "`%s` has dtype %R, whose bytes are in foreign order; convert it "
                     "first: %s.astype(%s.dtype.newbyteorder('='))",
                     parameter, descr, parameter, parameter);
        return -1;
    }
    return 0;
}

static int
view_array(PyArrayObject *array, const char *parameter, dl_tensor *view)
{
    /* One test for both kinds of trouble keeps the usual case short. */
    PyArray_Descr *descr = PyArray_DESCR(array);
    if ((descr->type_num > NPY_CLONGDOUBLE || PyArray_ISBYTESWAPPED(array))
        && check_dtype(array, parameter) < 0) {
        return -1;
    }
    *view = (dl_tensor){
        .data = PyArray_DATA(array),
        .count = (size_t)PyArray_SIZE(array),
        .item_size = (size_t)PyArray_ITEMSIZE(array),
        .dtype = dtype_of(descr),
        .device = DL_CPU,
        .ndim = PyArray_NDIM(array),
        .is_contiguous = PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISALIGNED(array),
        .is_writable = PyArray_ISWRITEABLE(array) != 0,
        .shape = (const int64_t *)PyArray_SHAPE(array),
        .strides = (const int64_t *)PyArray_STRIDES(array),
    };
    return 0;
}

/* Of a subclass: its elements may not be what its memory says. */
static int
check_mask(PyObject *object, const char *parameter)
{
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy.ma");
    PyObject *type =
        module == NULL ? NULL : PyObject_GetAttrString(module, "MaskedArray");
    int is_masked = type == NULL ? 0 : PyObject_IsInstance(object, type);

    Py_XDECREF(type);
    if (is_masked > 0) {
        PyErr_Format(PyExc_ValueError,
                     "`%s` is a masked array, whose mask would not go with it; pass "
                     "what stands for masked elements, as in %s.filled(0), or %s.data "
                     "and %s.mask one after the other",
                     parameter, parameter, parameter, parameter);
    }
    return PyErr_Occurred() == NULL ? 0 : -1;
}

/* How to make an array of it, as the rest of an error's last line. */
static const char *
advice_for(PyObject *object)
{
    static const struct {
        const char *module;
        const char *advice;
    } libraries[] = {
        {"pandas.", " .to_numpy(copy=True) makes an array that can be written to."},
        {"polars.", " .to_numpy(writable=True) makes an array."},
        {"xarray.", " .values is its array."},
        {"pyarrow.", " .to_numpy(zero_copy_only=False) makes an array."},
    };
    PyObject *module =
        PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
    const char *name =
        module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
    const char *advice = "";

    for (size_t i = 0; name != NULL && i < sizeof libraries / sizeof *libraries; i++) {
        if (strncmp(name, libraries[i].module, strlen(libraries[i].module)) == 0) {
            advice = libraries[i].advice;
        }
    }
    if (PyList_Check(object) || PyTuple_Check(object)) {
        advice = " numpy.array() makes an array of it.";
    } else if (PyNumber_Check(object)) {
        advice =
            " Results are written into the array: numpy.array([number]) makes one.";
    } else if (PyUnicode_Check(object) || PyBytes_Check(object)) {
        advice =
            " broadcast_object_list() and the other functions for objects take it.";
    }
    PyErr_Clear();
    Py_XDECREF(module);
    return advice;
}

static int
fail_wrong_type(PyObject *object, const char *parameter)
{
    /* Indented as torch's, which programs compare. */
    PyErr_Format(PyExc_TypeError,
                 "Invalid function argument. Expected parameter `%s` of type "
                 "numpy.ndarray (or a CPU torch.Tensor, or anything with DLPack)\n"
                 "             but got %R instead.%s",
                 parameter, (PyObject *)Py_TYPE(object), advice_for(object));
    return -1;
}

static bool
lends_memory(PyObject *object)
{
    return PyObject_CheckBuffer(object)
           || PyObject_HasAttrString(object, "__array_interface__");
}

/* Through an ndarray that NumPy makes around the object's memory.  Where it can only
 * copy, as from a scalar, results would be lost, so that is refused. */
static int
view_lender(PyObject *object, const char *parameter, dlpy_tensor *tensor)
{
    if (PyBytes_Check(object) || !lends_memory(object)) {
        return fail_wrong_type(object, parameter);
    }
    if (import_numpy() < 0) {
        return -1;
    }
    if (PyArray_IsScalar(object, Generic)) {
        return fail_wrong_type(object, parameter);
    }
    PyObject *array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    if (array == NULL) {
        return -1;
    }
    tensor->owner = array;
    if (PyArray_BASE((PyArrayObject *)array) == NULL) {
        return fail_wrong_type(object, parameter);
    }
    return view_array((PyArrayObject *)array, parameter, &tensor->view);
}

PyObject *
dlpy_ndarray_owner(PyObject *array)
{
    if (PyArray_API == NULL) {
        return NULL;
    }
    while (PyArray_Check(array)) {
        PyObject *base = PyArray_BASE((PyArrayObject *)array);
        if (base == NULL) {
            bool is_owner =
                (PyArray_FLAGS((PyArrayObject *)array) & NPY_ARRAY_OWNDATA) != 0;
            return is_owner ? array : NULL;
        }
        array = base;
    }
    return NULL;
}

void
dlpy_ndarray_memory(PyObject *owner, dlpy_memory *memory)
{
    PyArrayObject *array = (PyArrayObject *)owner;
    const npy_intp *shape = PyArray_DIMS(array);

    *memory = (dlpy_memory){.data = PyArray_DATA(array), .shape = shape};
    memory->size = (size_t)PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        memory->size *= (size_t)shape[i];
    }
}

/* An owner that goes may run Python code, which must not meet an exception. */
void
dlpy_tensor_drop_owner(dlpy_tensor *tensor)
{
#if PY_VERSION_HEX >= 0x030c0000
    PyObject *error = PyErr_GetRaisedException();
    Py_CLEAR(tensor->owner);
    PyErr_SetRaisedException(error);
#else
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_CLEAR(tensor->owner);
    PyErr_Restore(type, value, trace);
#endif
}

static bool
is_of_torch(PyObject *object)
{
    dlpy_library library;

    (void)dlpy_exchange_find(Py_TYPE(object), &library);
    return library == DLPY_LIBRARY_TORCH;
}

int
dlpy_tensor_from(PyObject *object, const char *parameter, dlpy_tensor *tensor)
{
    int found = find_numpy();

    tensor->owner = NULL;
    tensor->is_borrowed = false;
    tensor->is_torch = false;
    if (found < 0) {
        return -1;
    }
    if (found && PyArray_Check(object)) {
        if (!PyArray_CheckExact(object) && check_mask(object, parameter) < 0) {
            return -1;
        }
        return view_array((PyArrayObject *)object, parameter, &tensor->view);
    }
    int taken =
        dlpy_exchange_view(object, parameter, &tensor->view, &tensor->dimensions);
    tensor->is_borrowed = taken > 0;
    tensor->is_torch = is_of_torch(object);
    if (taken == 0) {
        taken = dlpy_dlpack_view(object, parameter, &tensor->view, &tensor->dimensions,
                                 &tensor->owner);
    }
    if (taken == 0 && !lends_memory(object)) {
        taken = dlpy_cuda_view(object, parameter, &tensor->view, &tensor->dimensions,
                               &tensor->owner);
    }
    if (taken > 0 && tensor->view.device == DL_CUDA) {
        taken = dlpy_cuda_give_stream(object, &tensor->view) < 0 ? -1 : 1;
    }
    if (taken < 0 || (taken == 0 && view_lender(object, parameter, tensor) < 0)) {
        dlpy_tensor_release(tensor);
        return -1;
    }
    return 0;
}
