/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/reducer_type.h"

#include <string.h>

#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/errors.h"
#include "python/module/parts.h"

typedef struct reducer_object {
    PyObject_HEAD union {
        dl_reducer base;
        dl_pair_reducer pairs;
    } core;
} reducer_object;

const dl_reducer *
dlpy_reducer_core(const PyObject *reducer)
{
    return &((const reducer_object *)reducer)->core.base;
}

PyObject *
dlpy_reducer_for(const dlpy_state *state, PyObject *op, PyObject *array,
                 const dlpy_tensor *tensor)
{
    if (tensor->view.device != DL_CPU) {
        PyErr_Format(PyExc_NotImplementedError,
                     "%S is for arrays in the CPU's memory; copy this one there", op);
        return NULL;
    }
    if (tensor->view.pieces != NULL) {
        PyErr_Format(PyExc_ValueError, "%S takes one array at a time", op);
        return NULL;
    }
    PyObject *made = PyObject_CallFunction(state->make_reducer, "OOs", op, array,
                                           dl_dtype_name(tensor->view.dtype));
    if (made != NULL && Py_TYPE(made) != state->reducer_type) {
        PyErr_SetString(PyExc_TypeError, "make_reducer() must return a _Reducer");
        Py_CLEAR(made);
    }
    return made;
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
pair_reducer(PyObject *module, PyObject *const *args, Py_ssize_t count,
             PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "_pair_reducer",
        .required = 7,
        .names = {"is_max", "dtype", "unit", "value", "value_offset", "index",
                  "index_offset"},
    };
    const dlpy_state *state = dlpy_state_of_module(module);
    dl_pair_reducer core;
    PyObject *values[7];
    const char *dtype;
    dl_pair pair;
    size_t unit;
    bool is_max;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_bool_from(values[0], "is_max", &is_max) < 0
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

static void
reducer_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot reducer_slots[] = {
    {Py_tp_doc, "What combines the elements of two arrays."},
    {Py_tp_dealloc, reducer_dealloc},
    {0, NULL},
};

static PyType_Spec reducer_spec = {
    .name = "distlite._Reducer",
    .basicsize = sizeof(reducer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = reducer_slots,
};

/* The classes of reductions are written in Python (reduce_op.py), which registers them
 * when it is imported. */
static PyObject *
set_reduce_op_types(PyObject *module, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords)
{
    static const dlpy_signature signature = {
        "_set_reduce_op_types", 3, {"members", "wrapper", "make_reducer"}};
    PyObject *values[3];
    dlpy_state *state = dlpy_state_of_module(module);

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values)
        < 0) {
        return NULL;
    }
    if (!PyType_Check(values[0]) || !PyType_Check(values[1])) {
        PyErr_SetString(PyExc_TypeError, "members and wrapper must be classes");
        return NULL;
    }
    Py_XSETREF(state->red_op_type, Py_NewRef(values[0]));
    Py_XSETREF(state->reduce_op_type, Py_NewRef(values[1]));
    Py_XSETREF(state->make_reducer, Py_NewRef(values[2]));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_pair_reducer", pair_reducer,
                  "_pair_reducer($module, /, is_max, dtype, unit, value, value_offset, "
                  "index, index_offset)\n--\n\n"
                  "MINLOC or MAXLOC of pairs that lie so."),
    DLPY_FUNCTION("_set_reduce_op_types", set_reduce_op_types,
                  "_set_reduce_op_types($module, /, members, wrapper, make_reducer)"
                  "\n--\n\n"
                  "The classes of reductions, and what makes those without a kernel."),
    {0},
};

int
dlpy_add_reducers(PyObject *module)
{
    dlpy_state *state = dlpy_state_of_module(module);

    if (dlpy_add_type(module, &reducer_spec, NULL, &state->reducer_type) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
