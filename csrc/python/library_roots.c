/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/library_roots.h"

#include "base/library.h"

int
dlpy_set_library_roots(void)
{
    PyObject *path = PySys_GetObject("path");
    PyObject *folders = path == NULL ? PyList_New(0) : PySequence_List(path);
    Py_ssize_t size = folders == NULL ? 0 : PyList_GET_SIZE(folders);
    const char **roots = PyMem_Calloc((size_t)size + 1, sizeof *roots);
    size_t count = 0;

    if (folders == NULL || roots == NULL) {
        Py_XDECREF(folders);
        PyMem_Free(roots);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *folder = PyList_GET_ITEM(folders, i);
        roots[count] = PyUnicode_Check(folder) ? PyUnicode_AsUTF8(folder) : NULL;
        count += roots[count] != NULL && roots[count][0] != '\0';
        PyErr_Clear();
    }
    dl_status status = dl_library_set_roots(roots, count);
    Py_DECREF(folders);
    PyMem_Free(roots);
    if (status != DL_OK) {
        PyErr_NoMemory();
    }
    return status == DL_OK ? 0 : -1;
}
