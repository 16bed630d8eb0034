/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/reduce_op_arg.h"

#include "python/arguments.h"

/* Members are instances of a subclass of int; their values are the core's. */
static int
op_from_member(PyObject *member, dl_reduce_op *op)
{
    long value = PyLong_AsLong(member);

    if (value < 0 || value >= DL_REDUCE_OP_COUNT) {
        PyErr_Format(PyExc_ValueError, "no such reduction: %R", member);
        return -1;
    }
    *op = (dl_reduce_op)value;
    return 0;
}

static int
op_from_wrapper(const dlpy_state *state, PyObject *wrapper, dl_reduce_op *op)
{
    PyObject *member = PyObject_GetAttrString(wrapper, "op");

    if (member == NULL) {
        return -1;
    }
    int result = -1;
    if ((PyObject *)Py_TYPE(member) == state->red_op_type) {
        result = op_from_member(member, op);
    } else {
        PyErr_Format(PyExc_TypeError, "%R has no member in `op`", wrapper);
    }
    Py_DECREF(member);
    return result;
}

/* The factor is a number or an array of one element: any object that float()
 * accepts. */
static int
factor_from(PyObject *wrapper, double *factor)
{
    PyObject *object = PyObject_GetAttrString(wrapper, "factor");

    if (object == NULL) {
        return -1;
    }
    *factor = PyFloat_AsDouble(object);
    Py_DECREF(object);
    return *factor == -1.0 && PyErr_Occurred() ? -1 : 0;
}

static int
fail_no_factor(void)
{
    PyErr_SetString(PyExc_RuntimeError,
                    "PREMUL_SUM has no factor; use ReduceOp.PREMUL_SUM(factor)");
    return -1;
}

int
dlpy_reduce_op_from(const dlpy_state *state, PyObject *object, dl_reduce_op *op,
                    double *factor)
{
    *factor = 1;
    if (object == NULL) {
        *op = DL_SUM;
        return 0;
    }
    /* Exact type comparison: subclassing these types serves no purpose, and a pointer
     * comparison is the cheapest test. */
    if ((PyObject *)Py_TYPE(object) == state->red_op_type) {
        if (op_from_member(object, op) < 0) {
            return -1;
        }
        return *op == DL_PREMUL_SUM ? fail_no_factor() : 0;
    }
    if ((PyObject *)Py_TYPE(object) == state->reduce_op_type) {
        if (op_from_wrapper(state, object, op) < 0) {
            return -1;
        }
        return *op == DL_PREMUL_SUM ? factor_from(object, factor) : 0;
    }
    PyErr_Format(PyExc_TypeError,
                 "Invalid function argument. Expected parameter `op` of type "
                 "distlite.ReduceOp\n             but got %R instead. It has SUM, "
                 "AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR and PREMUL_SUM(factor).",
                 (PyObject *)Py_TYPE(object));
    return -1;
}

PyObject *
dlpy_set_reduce_op_types(PyObject *module, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords)
{
    static const dlpy_signature signature = {
        "_set_reduce_op_types", 2, {"members", "wrapper"}};
    PyObject *values[2];
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
    Py_RETURN_NONE;
}
