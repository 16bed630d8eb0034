/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/free_threading.h"

/* Returns a new reference, as a borrowed one could be dropped meanwhile, or NULL,
 * without an exception. */
static PyObject *
dict_find(PyObject *dict, const char *key)
{
    PyObject *value = NULL;

#if PY_VERSION_HEX >= 0x030d0000
    if (PyDict_GetItemStringRef(dict, key, &value) < 0) {
        PyErr_Clear();
    }
#else
    value = Py_XNewRef(PyDict_GetItemString(dict, key));
#endif
    return value;
}

bool
dlpy_dict_has(PyObject *dict, const char *key)
{
    PyObject *value = dict_find(dict, key);

    Py_XDECREF(value);
    return value != NULL;
}

PyObject *
dlpy_imported_module(const char *name)
{
    return dict_find(PyImport_GetModuleDict(), name);
}
