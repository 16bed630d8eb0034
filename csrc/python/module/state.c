/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/state.h"

/* Needs no search: heap types know the module that created them. */
dlpy_state *
dlpy_state_of_class(PyTypeObject *defining_class)
{
    return PyType_GetModuleState(defining_class);
}

#if PY_VERSION_HEX < 0x030b0000
/* PyType_GetModuleByDef() was added in 3.11.  A class made in Python has no C
 * module, so the search follows the method resolution order to the first class of
 * this module. */
static PyObject *
module_of_type(PyTypeObject *type)
{
    Py_ssize_t count = PyTuple_GET_SIZE(type->tp_mro);

    for (Py_ssize_t i = 0; i < count; i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        if (!PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE)) {
            continue;
        }
        PyObject *module = ((PyHeapTypeObject *)base)->ht_module;
        if (module != NULL && PyModule_GetDef(module) == &dlpy_module) {
            return module;
        }
    }
    PyErr_Format(PyExc_TypeError, "%s is not a type of distlite", type->tp_name);
    return NULL;
}
#else
static PyObject *
module_of_type(PyTypeObject *type)
{
    return PyType_GetModuleByDef(type, &dlpy_module);
}
#endif

dlpy_state *
dlpy_state_of_type(PyTypeObject *type)
{
    PyObject *module = module_of_type(type);

    return module == NULL ? NULL : PyModule_GetState(module);
}

void
dlpy_state_set(PyObject **field, PyObject *object)
{
    DLPY_STORE(*field, Py_NewRef(object));
}
