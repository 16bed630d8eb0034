/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/array_library.h"

#include <stdbool.h>
#include <string.h>

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

dlpy_library
dlpy_library_of(PyTypeObject *type)
{
    PyObject *bases = type->tp_mro;
    Py_ssize_t count = bases == NULL ? 0 : PyTuple_GET_SIZE(bases);
    dlpy_library library = DLPY_LIBRARY_OTHER;

    for (Py_ssize_t i = 0; i < count && library == DLPY_LIBRARY_OTHER; i++) {
        library = library_of_one(PyTuple_GET_ITEM(bases, i));
    }
    return library;
}
