/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/group_methods.h"

/* Writes to the type's dict directly: for users the type is immutable, but its less
 * frequent methods are written in Python, which is loaded after this module. */
static PyObject *
add_group_methods(PyObject *module, PyObject *methods)
{
    PyTypeObject *type = dlpy_state_of_module(module)->group_type;

    if (!PyDict_Check(methods)) {
        PyErr_SetString(PyExc_TypeError, "a dict of methods is needed");
        return NULL;
    }
    if (PyDict_Update(type->tp_dict, methods) < 0) {
        return NULL;
    }
    PyType_Modified(type);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_add_group_methods", add_group_methods, METH_O,
     "_add_group_methods($module, methods, /)\n--\n\n"
     "Functions by name that become methods of ProcessGroup."},
    {0},
};

int
dlpy_add_group_methods(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
