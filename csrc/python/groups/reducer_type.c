/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/reducer_type.h"

#include <fenv.h>
#include <stddef.h>
#include <string.h>

#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/gil.h"
#include "python/module/parts.h"

/* Elements that a ufunc's loop combines at a time. */
#define LOOP_BYTES ((size_t)4096)

/* Reducers that are kept: more than a program has reductions and dtypes. */
#define MOST_KEPT 64

/* The signature of C functions: inout[i] = in[i] op inout[i]. */
typedef void (*c_function)(const void *in, void *inout, size_t count, void *context);

typedef struct function_reducer {
    dl_reducer base;
    c_function address; /* NULL: `function` of the object */
    void *context;
    dlpy_ufunc_loop loop; /* does the same without Python, unless there are errors */
} function_reducer;

typedef struct reducer_object {
    PyObject_HEAD union {
        dl_reducer base;
        dl_pair_reducer pairs;
        function_reducer function;
    } core;
    PyObject *name;     /* str, whose text `core` uses; or NULL */
    PyObject *function; /* combines two memoryviews, the second in place; or NULL */
    PyObject *failure;  /* the exception with which it failed in this call, or NULL */
} reducer_object;

const dl_reducer *
dlpy_reducer_core(const PyObject *reducer)
{
    return &((const reducer_object *)reducer)->core.base;
}

static dl_status
call_address(const dl_reducer *base, const void *left, void *right, size_t count)
{
    const function_reducer *self = (const function_reducer *)(const void *)base;

    self->address(left, right, count, self->context);
    return DL_OK;
}

/* Keeps the exception that is set, and makes its text the thread's last error. */
static dl_status
take_exception(reducer_object *self)
{
    PyObject *error = dlpy_error_take();
    PyObject *text = PyObject_Str(error);
    const char *words = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    PyErr_Clear();
    dl_status status =
        dl_fail(DL_BACKEND, "%s: %s", Py_TYPE(error)->tp_name,
                words == NULL ? "an error whose text cannot be shown" : words);
    Py_XDECREF(text);
    Py_XSETREF(self->failure, error);
    return status;
}

static dl_status
call_object(reducer_object *self, const void *left, void *right, size_t size)
{
    PyObject *views[] = {
        PyMemoryView_FromMemory((char *)(uintptr_t)left, (Py_ssize_t)size, PyBUF_READ),
        PyMemoryView_FromMemory(right, (Py_ssize_t)size, PyBUF_WRITE)};
    PyObject *result = views[0] == NULL || views[1] == NULL
                           ? NULL
                           : PyObject_Vectorcall(self->function, views, 2, NULL);
    dl_status status = result == NULL ? take_exception(self) : DL_OK;

    Py_XDECREF(result);
    Py_XDECREF(views[0]);
    Py_XDECREF(views[1]);
    return status;
}

/* Called on the thread of the call, which may hold the GIL, or on the lane's. */
static dl_status
call_function(const dl_reducer *base, const void *left, void *right, size_t count)
{
    reducer_object *self = (reducer_object *)(void *)((char *)(uintptr_t)base
                                                      - offsetof(reducer_object, core));

    if (!dlpy_may_enter()) {
        return dl_fail(DL_BACKEND, "the interpreter is finalizing");
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    dl_status status = call_object(self, left, right, count * base->unit);
    PyGILState_Release(gil);
    return status;
}

/* Runs the loop over a part of the elements.  Its results are used only if no
 * arithmetic error occurred, of which NumPy may warn or raise. */
static bool
run_loop(const function_reducer *self, const char *left, char *right, size_t count)
{
    _Alignas(64) char results[LOOP_BYTES];
    char *args[] = {(char *)(uintptr_t)left, right, results};
    Py_ssize_t unit = (Py_ssize_t)self->base.unit;
    const Py_ssize_t number = (Py_ssize_t)count, strides[] = {unit, unit, unit};

    feclearexcept(FE_ALL_EXCEPT);
    self->loop.run(args, &number, strides, self->loop.data);
    if (fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID) != 0) {
        return false;
    }
    memcpy(right, results, count * self->base.unit);
    return true;
}

static dl_status
call_loop(const dl_reducer *base, const void *left, void *right, size_t count)
{
    const function_reducer *self = (const function_reducer *)(const void *)base;
    size_t most = LOOP_BYTES / base->unit;

    for (size_t done = 0; done < count; done += most) {
        size_t part = count - done < most ? count - done : most;
        const char *from = (const char *)left + done * base->unit;
        char *to = (char *)right + done * base->unit;
        if (!run_loop(self, from, to, part)) {
            DL_TRY(call_function(base, from, to, part));
        }
    }
    return DL_OK;
}

void
dlpy_reducer_explain(PyObject *reducer)
{
    reducer_object *self = (reducer_object *)reducer;

    if (self->failure == NULL) {
        return;
    }
    PyObject *failure = self->failure;
    self->failure = NULL;
    if (!PyErr_GivenExceptionMatches(failure, PyExc_Exception)) {
        PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
        Py_DECREF(failure);
        return;
    }
    PyObject *error = dlpy_error_take();
    PyException_SetCause(error, failure); /* takes the reference */
    dlpy_error_restore(error);
}

/* Returns `made`, or a copy for one call if it has a Python function, since a failure
 * of the function belongs to one call. */
static PyObject *
for_one_call(reducer_object *made)
{
    if (made->function == NULL) {
        return Py_NewRef((PyObject *)made);
    }
    reducer_object *copy = (reducer_object *)Py_TYPE(made)->tp_alloc(Py_TYPE(made), 0);

    if (copy != NULL) {
        copy->core = made->core;
        copy->name = Py_XNewRef(made->name);
        copy->function = Py_XNewRef(made->function);
    }
    return (PyObject *)copy;
}

/* A reduction without a kernel, of arrays like `array`. */
typedef struct reduction {
    dl_reduce_op op;
    PyObject *object; /* that was given for it */
    PyObject *array;
    const dl_tensor *view;
} reduction;

/* The properties on which the choice of a reducer depends; without padding, since the
 * bytes are compared. */
typedef struct reducer_key {
    const void *function; /* NULL for MINLOC and MAXLOC */
    const void *dtype;    /* of an array that has no numbers; else NULL */
    size_t item_size;
    uint16_t reduction;
    uint16_t number;  /* dl_dtype */
    uint32_t is_rows; /* the last dimension has two elements */
} reducer_key;

/* Returns the key as bytes; None if there is none, NULL with an exception set. */
static PyObject *
reducer_key_of(const reduction *asked, PyObject *dtype)
{
    const dl_tensor *view = asked->view;
    reducer_key key = {.function = asked->op == DL_FUNCTION ? asked->object : NULL,
                       .dtype = view->dtype == DL_OPAQUE ? dtype : NULL,
                       .item_size = view->item_size,
                       .reduction = (uint16_t)asked->op,
                       .number = (uint16_t)view->dtype};

    if (view->ndim > 0 && view->shape == NULL) {
        Py_RETURN_NONE;
    }
    key.is_rows = view->ndim > 0 && view->shape[view->ndim - 1] == 2;
    return PyBytes_FromStringAndSize((const char *)&key, sizeof key);
}

/* Makes the reducer, and keeps it unless it is a C function's.  Entries hold the
 * objects whose addresses are in their keys. */
static PyObject *
make_kept(const dlpy_state *state, const reduction *asked, PyObject *key,
          PyObject *dtype)
{
    PyObject *made = PyObject_CallFunction(
        DLPY_LOAD(state->make_reducer), "OOsn", asked->object, asked->array,
        dl_dtype_name(asked->view->dtype), (Py_ssize_t)asked->view->item_size);

    if (made == NULL || Py_TYPE(made) != state->reducer_type || key == Py_None
        || dlpy_reducer_core(made)->combine == call_address) {
        return made;
    }
    if (PyDict_Size(state->reducers) >= MOST_KEPT) {
        PyDict_Clear(state->reducers);
    }
    PyObject *entry = PyTuple_Pack(3, made, asked->object, dtype);
    if (entry == NULL || PyDict_SetItem(state->reducers, key, entry) < 0) {
        Py_CLEAR(made);
    }
    Py_XDECREF(entry);
    return made;
}

static PyObject *
find_or_make(const dlpy_state *state, const reduction *asked)
{
    PyObject *dtype = asked->view->dtype == DL_OPAQUE
                          ? PyObject_GetAttrString(asked->array, "dtype")
                          : Py_NewRef(Py_None);
    if (dtype == NULL) {
        PyErr_Clear();
        dtype = Py_NewRef(Py_None);
    }
    PyObject *key = reducer_key_of(asked, dtype);
    PyObject *made = NULL;

    if (key != NULL) {
        PyObject *entry = PyObject_GetItem(state->reducers, key);
        if (entry != NULL) {
            made = Py_NewRef(PyTuple_GET_ITEM(entry, 0));
            Py_DECREF(entry);
        } else if (PyErr_ExceptionMatches(PyExc_KeyError)) {
            PyErr_Clear();
            made = make_kept(state, asked, key, dtype);
        }
    }
    Py_XDECREF(key);
    Py_DECREF(dtype);
    return made;
}

PyObject *
dlpy_reducer_for(const dlpy_state *state, dl_reduce_op op, PyObject *object,
                 PyObject *array, const dlpy_tensor *tensor)
{
    reduction asked = {op, object, array, &tensor->view};

    if (tensor->view.device != DL_CPU) {
        PyErr_Format(PyExc_NotImplementedError,
                     "%S is for arrays in the CPU's memory; copy this one there",
                     object);
        return NULL;
    }
    if (tensor->view.pieces != NULL) {
        PyErr_Format(PyExc_ValueError, "%S takes one array at a time", object);
        return NULL;
    }
    PyObject *made = find_or_make(state, &asked);
    if (made == NULL) {
        return NULL;
    }
    PyObject *reducer = NULL;
    if (Py_TYPE(made) == state->reducer_type) {
        reducer = for_one_call((reducer_object *)made);
    } else {
        PyErr_SetString(PyExc_TypeError, "make_reducer() must return a _Reducer");
    }
    Py_DECREF(made);
    return reducer;
}

static int
dtype_from(PyObject *object, const char *what, dl_dtype *dtype)
{
    const char *name;

    if (dlpy_name_from(object, what, &name) < 0) {
        return -1;
    }
    for (int i = DL_BOOL; i < DL_DTYPE_COUNT; i++) {
        if (strcmp(dl_dtype_name((dl_dtype)i), name) == 0) {
            *dtype = (dl_dtype)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "%s: %s is no dtype of numbers", what, name);
    return -1;
}

static int
size_from(PyObject *object, const char *what, size_t *size)
{
    int64_t value;

    if (dlpy_int64_from(object, what, &value) < 0) {
        return -1;
    }
    if (value < 0) {
        PyErr_Format(PyExc_ValueError, "%s must not be negative", what);
        return -1;
    }
    *size = (size_t)value;
    return 0;
}

static PyObject *
pair_reducer(PyObject *module, PyObject *const *values)
{
    const dlpy_state *state = dlpy_state_of_module(module);
    dl_pair_reducer core;
    const char *dtype;
    dl_pair pair;
    size_t unit;
    bool is_max;

    if (dlpy_bool_from(values[0], "is_max", &is_max) < 0
        || dlpy_name_from(values[1], "dtype", &dtype) < 0
        || size_from(values[2], "unit", &unit) < 0
        || dtype_from(values[3], "value", &pair.value) < 0
        || size_from(values[4], "value_offset", &pair.value_offset) < 0
        || dtype_from(values[5], "index", &pair.index) < 0
        || size_from(values[6], "index_offset", &pair.index_offset) < 0) {
        return NULL;
    }
    dl_status status = dl_pair_reducer_init(&core, &pair, unit, is_max);
    if (status != DL_OK) {
        PyErr_SetString(PyExc_ValueError, dl_last_error()->text);
        return NULL;
    }
    core.base.code = dl_reducer_code(dtype, core.base.name);
    PyObject *made = state->reducer_type->tp_alloc(state->reducer_type, 0);
    if (made != NULL) {
        ((reducer_object *)made)->core.pairs = core;
    }
    return made;
}

DLPY_PARSED(pair_reducer, "_pair_reducer", 7, "is_max", "dtype", "unit", "value",
            "value_offset", "index", "index_offset")

static PyObject *
function_reducer_new(PyObject *module, PyObject *const *values)
{
    const dlpy_state *state = dlpy_state_of_module(module);
    function_reducer core = {.base.may_fail = true};
    const char *dtype;
    size_t address = 0, context;
    int64_t type_number = 0;

    if (dlpy_name_from(values[0], "name", &core.base.name) < 0
        || dlpy_name_from(values[1], "dtype", &dtype) < 0
        || size_from(values[2], "unit", &core.base.unit) < 0
        || (PyLong_Check(values[3]) && size_from(values[3], "function", &address) < 0)
        || size_from(values[4], "context", &context) < 0
        || (values[6] != NULL
            && dlpy_int64_from(values[6], "type_number", &type_number) < 0)) {
        return NULL;
    }
    if (core.base.unit == 0) {
        PyErr_SetString(PyExc_ValueError, "elements without bytes cannot be reduced");
        return NULL;
    }
    core.base.code = dl_reducer_code(dtype, core.base.name);
    core.base.may_fail = address == 0;
    core.base.combine = address == 0 ? call_function : call_address;
    core.address = (c_function)(uintptr_t)address;
    core.context = (void *)context;
    if (values[5] != NULL && values[5] != Py_None && core.base.unit <= LOOP_BYTES
        && dlpy_ufunc_find_loop(values[5], (int)type_number, &core.loop)) {
        core.base.combine = call_loop;
    }
    reducer_object *made =
        (reducer_object *)state->reducer_type->tp_alloc(state->reducer_type, 0);
    if (made != NULL) {
        made->core.function = core;
        made->name = Py_NewRef(values[0]);
        made->function = address == 0 ? Py_NewRef(values[3]) : NULL;
    }
    return (PyObject *)made;
}

DLPY_PARSED(function_reducer_new, "_function_reducer", 5, "name", "dtype", "unit",
            "function", "context", "ufunc", "type_number")

static int
reducer_traverse(PyObject *object, visitproc visit, void *arg)
{
    reducer_object *self = (reducer_object *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->failure);
    return 0;
}

static int
reducer_clear(PyObject *object)
{
    reducer_object *self = (reducer_object *)object;

    Py_CLEAR(self->function);
    Py_CLEAR(self->failure);
    return 0;
}

static void
reducer_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    (void)reducer_clear(object);
    Py_CLEAR(((reducer_object *)object)->name);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot reducer_slots[] = {
    {Py_tp_doc, "Combines the elements of two arrays."},
    {Py_tp_traverse, reducer_traverse},
    {Py_tp_clear, reducer_clear},
    {Py_tp_dealloc, reducer_dealloc},
    {0, NULL},
};

static PyType_Spec reducer_spec = {
    .name = "distlite._Reducer",
    .basicsize = sizeof(reducer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = reducer_slots,
};

/* The classes of reductions are written in Python (reduce_op.py), which registers them
 * when it is imported. */
static PyObject *
set_reduce_op_types(PyObject *module, PyObject *const *values)
{
    dlpy_state *state = dlpy_state_of_module(module);

    if (!PyType_Check(values[0]) || !PyType_Check(values[1])) {
        PyErr_SetString(PyExc_TypeError, "members and wrapper must be classes");
        return NULL;
    }
    dlpy_state_set(&state->red_op_type, values[0]);
    dlpy_state_set(&state->reduce_op_type, values[1]);
    dlpy_state_set(&state->make_reducer, values[2]);
    Py_RETURN_NONE;
}

DLPY_PARSED(set_reduce_op_types, "_set_reduce_op_types", 3, "members", "wrapper",
            "make_reducer")

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_pair_reducer", pair_reducer_call, DLPY_DOC__PAIR_REDUCER),
    DLPY_FUNCTION("_function_reducer", function_reducer_new_call,
                  DLPY_DOC__FUNCTION_REDUCER),
    DLPY_FUNCTION("_set_reduce_op_types", set_reduce_op_types_call,
                  DLPY_DOC__SET_REDUCE_OP_TYPES),
    {0},
};

static int
begin_reducers(dlpy_state *state, PyObject *Py_UNUSED(module))
{
    state->reducers = PyDict_New();
    return state->reducers == NULL ? -1 : 0;
}

const dlpy_part dlpy_reducers = {
    .begin = begin_reducers,
    .functions = functions,
    .type = &reducer_spec,
    .slot = offsetof(dlpy_state, reducer_type),
};
