/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/arrays/tensor_arg.h"

#include <float.h>
#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "python/arrays/cuda_arg.h"
#include "python/arrays/dlpack.h"
#include "python/module/convert.h"
#include "python/module/free_threading.h"
#include "tensor/strided.h"

/* The core borrows shape and strides from the array. */
_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "npy_intp is int64_t");
_Static_assert(sizeof(npy_intp) == sizeof(Py_ssize_t), "and Py_ssize_t");

bool
dlpy_ufunc_find_loop(PyObject *object, int type_number, dlpy_ufunc_loop *loop)
{
    const PyUFuncObject *ufunc = (const PyUFuncObject *)(const void *)object;

    for (int i = 0; ufunc->nargs == 3 && i < ufunc->ntypes; i++) {
        const char *types = ufunc->types + (ptrdiff_t)i * 3;
        if (types[0] == type_number && types[1] == type_number
            && types[2] == type_number) {
            *loop = (dlpy_ufunc_loop){ufunc->functions[i], ufunc->data[i]};
            return true;
        }
    }
    return false;
}

/* True once NumPy's C interface, a static variable of its headers, is loaded. */
static atomic_bool has_numpy;

static int
load_interface(void)
{
    import_array1(-1);
    return 0;
}

static int
import_numpy(void)
{
    static dlpy_mutex lock;

    if (atomic_load_explicit(&has_numpy, DLPY_ACQUIRE)) {
        return 0;
    }
    /* Imported first, so that no module runs its code while the lock is held. */
    PyObject *module = PyImport_ImportModule("numpy");
    if (module == NULL) {
        return -1;
    }
    Py_DECREF(module);
    dlpy_mutex_lock(&lock);
    bool is_loaded =
        atomic_load_explicit(&has_numpy, memory_order_relaxed) || load_interface() == 0;
    atomic_store_explicit(&has_numpy, is_loaded, DLPY_RELEASE);
    dlpy_mutex_unlock(&lock);
    return is_loaded ? 0 : -1;
}

/* Returns 1 if NumPy's C interface is loaded; 0 if NumPy has not been imported, so the
 * argument cannot be an ndarray; -1 with an exception set. */
static int
find_numpy(void)
{
    if (atomic_load_explicit(&has_numpy, DLPY_ACQUIRE)) {
        return 1;
    }
    PyObject *module = dlpy_imported_module("numpy");
    if (module == NULL) {
        return 0;
    }
    Py_DECREF(module);
    return import_numpy() < 0 ? -1 : 1;
}

/* Types that other packages add to NumPy are identified by name: their numbers are
 * assigned at run time, in the order of imports. */
static const char *
last_name_of(const PyArray_Descr *descr)
{
    const char *name = descr->typeobj->tp_name;
    const char *dot = strrchr(name, '.');

    return dot == NULL ? name : dot + 1;
}

static dl_dtype
dtype_of_name(const char *name)
{
    static const dl_dtype known[] = {DL_BFLOAT16, DL_FLOAT8_E4M3FN, DL_FLOAT8_E5M2};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, dl_dtype_name(known[i])) == 0) {
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
    return dtype_of_name(last_name_of(descr));
}

_Static_assert(sizeof(long) == 8, "NPY_LONG is int64");

/* The code contains NumPy's number of the unit. */
static uint32_t
code_of_time(dl_opaque_kind kind, const PyArray_Descr *descr)
{
    const PyArray_DatetimeDTypeMetaData *meta =
        (const void *)PyDataType_C_METADATA(descr);

    return dl_opaque_code(kind, (size_t)meta->meta.num << 8 | (size_t)meta->meta.base);
}

static int put_dtype(dl_opaque_text *text, PyArray_Descr *descr);

/* Appends the numbers of a shape tuple, without parentheses. */
static int
put_shape(dl_opaque_text *text, PyObject *shape)
{
    PyObject *items = PySequence_Tuple(shape);

    for (Py_ssize_t i = 0; items != NULL && i < PyTuple_GET_SIZE(items); i++) {
        dl_opaque_put(text, i > 0 ? ", " : "");
        dl_opaque_put_number(text, PyLong_AsLongLong(PyTuple_GET_ITEM(items, i)));
    }
    Py_XDECREF(items);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

/* Appends any str, even one with lone surrogates. */
static int
put_type_name(dl_opaque_text *text, PyObject *name)
{
    PyObject *encoded = PyUnicode_AsEncodedString(name, "utf-8", "surrogatepass");

    if (encoded == NULL) {
        return -1;
    }
    dl_opaque_put_name(text, PyBytes_AS_STRING(encoded),
                       (size_t)PyBytes_GET_SIZE(encoded));
    Py_DECREF(encoded);
    return 0;
}

/* Appends one field as "a: int32 at 0, ".  `fields` maps its name to (dtype, offset),
 * which a title may follow. */
static int
put_field(dl_opaque_text *text, PyObject *fields, PyObject *name)
{
    PyObject *field = PyObject_GetItem(fields, name);
    PyArray_Descr *descr;
    Py_ssize_t offset;
    PyObject *title;
    int result = -1;

    if (field != NULL && PyArg_ParseTuple(field, "On|O", &descr, &offset, &title)
        && put_type_name(text, name) == 0) {
        dl_opaque_put(text, ": ");
        result = put_dtype(text, descr);
        dl_opaque_put(text, " at ");
        dl_opaque_put_number(text, offset);
        dl_opaque_put(text, ", ");
    }
    Py_XDECREF(field);
    return result;
}

/* Appends "{a: int32 at 0, b: float32 at 4, 8 bytes}".  Omits what does not affect the
 * elements: titles, flags and metadata. */
static int
put_record(dl_opaque_text *text, PyArray_Descr *descr)
{
    PyObject *names = PyDataType_NAMES(descr);
    PyObject *fields = PyDataType_FIELDS(descr);

    dl_opaque_put(text, "{");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        if (put_field(text, fields, PyTuple_GET_ITEM(names, i)) < 0) {
            return -1;
        }
    }
    dl_opaque_put_number(text, PyDataType_ELSIZE(descr));
    dl_opaque_put(text, " bytes}");
    return 0;
}

/* Appends "int32[2, 3]". */
static int
put_subarray(dl_opaque_text *text, const PyArray_ArrayDescr *subarray)
{
    if (put_dtype(text, subarray->base) < 0) {
        return -1;
    }
    dl_opaque_put(text, "[");
    if (put_shape(text, subarray->shape) < 0) {
        return -1;
    }
    dl_opaque_put(text, "]");
    return 0;
}

static int
put_string_of(dl_opaque_text *text, PyArray_Descr *descr)
{
    PyObject *name = PyObject_Str((PyObject *)descr);
    const char *letters = name == NULL ? NULL : PyUnicode_AsUTF8(name);

    if (letters != NULL) {
        dl_opaque_put(text, letters);
    }
    Py_XDECREF(name);
    return letters == NULL ? -1 : 0;
}

/* Returns the code of a dtype, or 0 if the code is derived from its description. */
static uint32_t
own_code_of(const PyArray_Descr *descr)
{
    size_t size = (size_t)PyDataType_ELSIZE(descr);

    switch (descr->type_num) {
    case NPY_STRING:
        return dl_opaque_code(DL_OPAQUE_BYTES, size);
    case NPY_UNICODE:
        return dl_opaque_code(DL_OPAQUE_CHARACTERS, size / sizeof(Py_UCS4));
    case NPY_VOID:
        return PyDataType_HASFIELDS(descr) || PyDataType_HASSUBARRAY(descr)
                   ? 0
                   : dl_opaque_code(DL_OPAQUE_VOID, size);
    case NPY_DATETIME:
        return code_of_time(DL_OPAQUE_DATETIME, descr);
    case NPY_TIMEDELTA:
        return code_of_time(DL_OPAQUE_TIMEDELTA, descr);
    case NPY_LONGDOUBLE:
        return dl_opaque_code(DL_OPAQUE_LONGDOUBLE, LDBL_MANT_DIG);
    case NPY_CLONGDOUBLE:
        return dl_opaque_code(DL_OPAQUE_CLONGDOUBLE, LDBL_MANT_DIG);
    default:
        return dl_opaque_named(last_name_of(descr));
    }
}

static int
put_plain(dl_opaque_text *text, PyArray_Descr *descr)
{
    dl_dtype dtype = dtype_of(descr);
    uint32_t code = dtype == DL_OPAQUE ? own_code_of(descr) : 0;
    char name[DL_DTYPE_TEXT_SIZE];

    if (dtype == DL_OPAQUE && code == 0) {
        return put_string_of(text, descr);
    }
    dl_dtype_describe(dtype, code, name);
    dl_opaque_put(text, name);
    return 0;
}

/* Records may be nested; the recursion is limited to protect the stack. */
static int
put_dtype(dl_opaque_text *text, PyArray_Descr *descr)
{
    int result;

    if (Py_EnterRecursiveCall(" in the description of a dtype") != 0) {
        return -1;
    }
    if (PyDataType_HASSUBARRAY(descr)) {
        result = put_subarray(text, PyDataType_SUBARRAY(descr));
    } else if (PyDataType_HASFIELDS(descr)) {
        result = put_record(text, descr);
    } else {
        dl_opaque_put(text, PyDataType_ISNOTSWAPPED(descr) ? "" : "byte-swapped ");
        result = put_plain(text, descr);
    }
    Py_LeaveRecursiveCall();
    return result;
}

/* A record, and its parts when it was described.  A program may rename the fields of a
 * dtype in place; NumPy then replaces these objects. */
typedef struct described {
    uint32_t code;
    PyArray_Descr *descr;
    PyObject *names;
    PyObject *fields;
} described;

/* The dtypes described last, newest first.  A description costs several times as much
 * as a small operation.  The objects are held, so that no other can be created at the
 * same address. */
static described recent[8];
static dlpy_mutex recent_lock;

/* Returns whether no field is a record, whose own fields may be renamed. */
static bool
is_flat(PyObject *names, PyObject *fields)
{
    bool is_flat = true;

    for (Py_ssize_t i = 0; is_flat && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *field = PyObject_GetItem(fields, PyTuple_GET_ITEM(names, i));
        PyArray_Descr *descr = NULL;
        if (field != NULL && PyTuple_Check(field)) {
            descr = (PyArray_Descr *)PyTuple_GET_ITEM(field, 0);
        }
        while (descr != NULL && PyDataType_HASSUBARRAY(descr)) {
            descr = PyDataType_SUBARRAY(descr)->base;
        }
        is_flat = descr != NULL && !PyDataType_HASFIELDS(descr);
        Py_XDECREF(field);
    }
    return is_flat;
}

static void
release_record(const described *record)
{
    Py_XDECREF(record->descr);
    Py_XDECREF(record->names);
    Py_XDECREF(record->fields);
}

/* Returns 0 if the code is not cached, or the dtype has changed since. */
static uint32_t
recent_code_of(const PyArray_Descr *descr)
{
    uint32_t code = 0;

    dlpy_mutex_lock(&recent_lock);
    for (size_t i = 0; code == 0 && i < sizeof recent / sizeof *recent; i++) {
        const described *record = &recent[i];
        if (record->descr == descr && record->names == PyDataType_NAMES(descr)
            && record->fields == PyDataType_FIELDS(descr)) {
            code = record->code;
        }
    }
    dlpy_mutex_unlock(&recent_lock);
    return code;
}

/* Takes ownership of the references. */
static void
remember_code(const described *record)
{
    size_t last = sizeof recent / sizeof *recent - 1;

    dlpy_mutex_lock(&recent_lock);
    described forgotten = recent[last];
    memmove(&recent[1], &recent[0], last * sizeof *recent);
    recent[0] = *record;
    dlpy_mutex_unlock(&recent_lock);
    /* Must come last: freeing a dtype's metadata may run Python code that calls this
     * function. */
    release_record(&forgotten);
}

static int
describe_code(PyArray_Descr *descr, uint32_t *code)
{
    dl_opaque_text text = {0};

    if (put_dtype(&text, descr) < 0) {
        return -1;
    }
    *code = dl_opaque_code_of_text(&text);
    return 0;
}

/* Takes the parts before describing them: if another thread renames fields in between,
 * they do not match the dtype any more, and the code is never found. */
static int
describe_record(PyArray_Descr *descr, uint32_t *code)
{
    Py_INCREF(descr);
    described record = {
        .descr = descr,
        .names = Py_NewRef(PyDataType_NAMES(descr)),
        .fields = Py_NewRef(PyDataType_FIELDS(descr)),
    };
    bool can_be_found = is_flat(record.names, record.fields);
    int result = PyErr_Occurred() ? -1 : describe_code(descr, code);

    record.code = *code;
    if (result == 0 && can_be_found) {
        remember_code(&record);
    } else {
        release_record(&record);
    }
    return result;
}

/* Does not run Python code for frequent dtypes. */
static int
code_of(PyArray_Descr *descr, uint32_t *code)
{
    *code = own_code_of(descr);
    if (*code != 0) {
        return 0;
    }
    if (!PyDataType_HASFIELDS(descr)) {
        return describe_code(descr, code);
    }
    *code = recent_code_of(descr);
    return *code != 0 ? 0 : describe_record(descr, code);
}

static int
check_dtype(PyArrayObject *array, const char *parameter)
{
    PyArray_Descr *descr = PyArray_DESCR(array);

    if (PyDataType_FLAGCHK(descr, NPY_ITEM_HASOBJECT)) {
        PyErr_Format(
            PyExc_TypeError,
            "`%s` has dtype %S: its elements are references to objects of "
            "this process, which other processes cannot use; all_gather_object() and "
            "the other functions for objects send them",
            parameter, descr);
        return -1;
    }
    if (PyArray_ISBYTESWAPPED(array)) {
        PyErr_Format(PyExc_ValueError,
                     "`%s` has dtype %R, whose byte order is not native; convert it "
                     "first: %s.astype(%s.dtype.newbyteorder('='))",
                     parameter, descr, parameter, parameter);
        return -1;
    }
    return 0;
}

/* numpy.lib.stride_tricks.as_strided() takes any strides, and so may other
 * libraries. */
static int
check_addresses(const dl_tensor *view, const char *parameter)
{
    if (dl_tensor_has_addresses(view)) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 "`%s` has strides that lead out of the address space", parameter);
    return -1;
}

static int
view_array(PyArrayObject *array, const char *parameter, dl_tensor *view)
{
    /* One test for both kinds of invalid dtypes keeps the common case short. */
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
    if (!view->is_contiguous && check_addresses(view, parameter) < 0) {
        return -1;
    }
    return view->dtype == DL_OPAQUE ? code_of(descr, &view->opaque_code) : 0;
}

/* Checks an instance of a subclass, whose elements may differ from what is in
 * memory. */
static int
check_mask(PyObject *object, const char *parameter)
{
    PyObject *module = dlpy_imported_module("numpy.ma");
    PyObject *type =
        module == NULL ? NULL : PyObject_GetAttrString(module, "MaskedArray");
    int is_masked = type == NULL ? 0 : PyObject_IsInstance(object, type);

    Py_XDECREF(type);
    Py_XDECREF(module);
    if (is_masked > 0) {
        PyErr_Format(
            PyExc_ValueError,
            "`%s` is a masked array, and its mask would not be sent; fill the masked "
            "elements, as with %s.filled(0), or pass %s.data and %s.mask in two calls",
            parameter, parameter, parameter, parameter);
    }
    return PyErr_Occurred() == NULL ? 0 : -1;
}

/* Returns advice on how to create an array from the object, which ends the error
 * message. */
static const char *
advice_for(PyObject *object)
{
    static const struct {
        const char *module;
        const char *advice;
    } libraries[] = {
        {"pandas", " .to_numpy(copy=True) makes an array that can be written to."},
        {"polars", " .to_numpy(writable=True) makes an array."},
        {"xarray", " .values is its array."},
        {"pyarrow", " .to_numpy(zero_copy_only=False) makes an array."},
    };
    PyObject *module =
        PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
    const char *name =
        module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
    const char *advice = "";

    for (size_t i = 0; name != NULL && i < sizeof libraries / sizeof *libraries; i++) {
        size_t size = strlen(libraries[i].module);

        /* pandas 3 names its package as the module of its types. */
        if (strncmp(name, libraries[i].module, size) == 0
            && (name[size] == '.' || name[size] == '\0')) {
            advice = libraries[i].advice;
        }
    }
    if (*advice != '\0') {
        /* DataArray has numbers' methods, too. */
    } else if (object == Py_None) {
        advice = " Collectives write into the array that they are given, and return "
                 "None: x = all_reduce(x) loses the array.";
    } else if (PyList_Check(object) || PyTuple_Check(object)) {
        advice = " numpy.array() makes an array of it.";
    } else if (PyNumber_Check(object)) {
        advice = " Results are written into the array: numpy.array([number]) makes "
                 "one, and the "
                 "functions of distlite.functional take numbers and return them.";
    } else if (PyUnicode_Check(object) || PyBytes_Check(object) || PyDict_Check(object)
               || PyAnySet_Check(object)) {
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
    /* Indented like torch's message, which programs compare. */
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

/* Views the object through an ndarray that NumPy creates around its memory.  If NumPy
 * can only copy, as from a scalar, results would be lost, so the object is rejected. */
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
    if (!atomic_load_explicit(&has_numpy, DLPY_ACQUIRE)) {
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

int
dlpy_tensor_count_write(const dlpy_tensor *tensor, PyObject *array)
{
    return tensor->view.pieces != NULL ? dlpy_pack_note_write(array)
                                       : dlpy_torch_note_write(array);
}

/* Freeing the owner may run Python code, which must not run with an exception set. */
void
dlpy_tensor_drop_owner(dlpy_tensor *tensor)
{
    PyObject *error = dlpy_error_take();

    Py_CLEAR(tensor->owner);
    dlpy_error_restore(error);
}

static bool
is_of_torch(PyObject *object)
{
    dlpy_library library;

    (void)dlpy_exchange_find(Py_TYPE(object), &library);
    return library == DLPY_LIBRARY_TORCH;
}

bool
dlpy_tensor_is_known(PyObject *object)
{
    bool is_array =
        atomic_load_explicit(&has_numpy, DLPY_ACQUIRE) && PyArray_Check(object);

    return is_array || is_of_torch(object);
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
    if (dlpy_pack_view(object, &tensor->view)) {
        return 0;
    }
    int taken =
        dlpy_exchange_view(object, parameter, &tensor->view, &tensor->dimensions);
    tensor->is_borrowed = taken > 0;
    tensor->is_torch = is_of_torch(object);
    if (taken == 0) {
        taken = dlpy_dlpack_view(object, parameter, dlpy_cuda_export_stream(object),
                                 &tensor->view, &tensor->dimensions, &tensor->owner);
    }
    if (taken == 0 && !lends_memory(object)) {
        taken = dlpy_cuda_view(object, parameter, &tensor->view, &tensor->dimensions,
                               &tensor->owner);
    }
    if (taken > 0 && check_addresses(&tensor->view, parameter) < 0) {
        taken = -1;
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
