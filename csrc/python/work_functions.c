/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/completions.h"
#include "python/work_type.h"

static PyObject *
next_finished(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    return dlpy_completions_next(dlpy_state_of_module(module)->completions);
}

static PyObject *
stop_completions(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    dlpy_completions_stop(dlpy_state_of_module(module)->completions);
    Py_RETURN_NONE;
}

static PyObject *
renew_completions(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    dlpy_completions_renew(dlpy_state_of_module(module)->completions);
    Py_RETURN_NONE;
}

static PyObject *
set_future_of_work(PyObject *module, PyObject *factory)
{
    dlpy_state *state = dlpy_state_of_module(module);

    Py_XSETREF(state->future_of_work, Py_NewRef(factory));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_next_finished", next_finished, METH_NOARGS,
     "_next_finished($module, /)\n--\n\n"},
    {"_stop_completions", stop_completions, METH_NOARGS,
     "_stop_completions($module, /)\n--\n\n"},
    {"_renew_completions", renew_completions, METH_NOARGS,
     "_renew_completions($module, /)\n--\n\n"},
    {"_set_future_of_work", set_future_of_work, METH_O,
     "_set_future_of_work($module, factory, /)\n--\n\n"},
    {0},
};

int
dlpy_add_work_functions(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
