/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/library_functions.h"

#include <string.h>

#include "base/library.h"
#include "pg/device/cuda_table.h"
#include "pg/mpi/mpi_backend.h"
#include "pg/nccl/nccl_backend.h"
#include "pg/ucc/ucc_backend.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"

int
dlpy_set_library_roots(void)
{
    PyObject *sys = PyImport_ImportModule("sys");
    PyObject *path = sys == NULL ? NULL : PyObject_GetAttrString(sys, "path");
    PyObject *folders = path == NULL ? PyList_New(0) : PySequence_List(path);
    Py_ssize_t size = folders == NULL ? 0 : PyList_GET_SIZE(folders);
    const char **roots = PyMem_Calloc((size_t)size + 1, sizeof *roots);
    size_t count = 0;

    if (path == NULL) {
        PyErr_Clear(); /* the program has deleted it */
    }
    Py_XDECREF(path);
    Py_XDECREF(sys);
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

static PyObject *
raise_status(PyObject *module, dl_status status)
{
    return dlpy_raise_collective(dlpy_state_of_module(module), status);
}

/* Asks a library for its version.  If it is not found, raises an error that lists where
 * it was searched for, which tells more than None. */
static PyObject *
version_of(PyObject *module, dl_status (*ask)(int *version))
{
    int version;

    if (dlpy_set_library_roots() < 0) {
        return NULL;
    }
    dl_status status = ask(&version);
    return status == DL_OK ? PyLong_FromLong(version) : raise_status(module, status);
}

static PyObject *
nccl_version(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    return version_of(module, dl_nccl_version);
}

static PyObject *
ucc_version(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    return version_of(module, dl_ucc_version);
}

/* Raises an error unless the CUDA runtime and a device for it are available. */
static PyObject *
check_cuda(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    const dl_cuda_table *cuda;

    if (dlpy_set_library_roots() < 0) {
        return NULL;
    }
    dl_status status = dl_cuda_load(&cuda);
    return status == DL_OK ? Py_NewRef(Py_None) : raise_status(module, status);
}

static PyObject *
mpi_library(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    const char *text, *path;

    if (dlpy_set_library_roots() < 0) {
        return NULL;
    }
    dl_status status = dl_mpi_probe(&text, &path);
    return status == DL_OK ? Py_BuildValue("ss", text, path)
                           : raise_status(module, status);
}

/* Starting MPI blocks until all ranks have started. */
static PyObject *
mpi_place(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    int rank, size;
    dl_status status;

    if (dlpy_set_library_roots() < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_mpi_place(&rank, &size);
    Py_END_ALLOW_THREADS
    return status == DL_OK ? Py_BuildValue("ii", rank, size)
                           : raise_status(module, status);
}

/* The longest text that rank 0 may send, which is an address. */
#define TELL_SIZE 1024

static PyObject *
mpi_tell(PyObject *module, PyObject *const *values)
{
    char text[TELL_SIZE] = "";
    const char *told;
    int64_t timeout;
    dl_status status;

    if (dlpy_name_from(values[0], "text", &told) < 0
        || dlpy_timeout_from(values[1], -1, &timeout) < 0) {
        return NULL;
    }
    if (strlen(told) >= sizeof text) {
        PyErr_Format(PyExc_ValueError, "the text has %zu bytes, more than %zu",
                     strlen(told), sizeof text - 1);
        return NULL;
    }
    strcpy(text, told);
    Py_BEGIN_ALLOW_THREADS
    status = dl_mpi_broadcast_in_world(text, sizeof text, dl_deadline_after(timeout));
    Py_END_ALLOW_THREADS
    return status == DL_OK ? PyUnicode_FromString(text) : raise_status(module, status);
}

DLPY_PARSED(mpi_tell, "_mpi_tell", 2, "text", "timeout")

static PyObject *
mpi_give_up(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    dl_mpi_give_up();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_nccl_version", nccl_version, METH_NOARGS, DLPY_DOC__NCCL_VERSION},
    {"_ucc_version", ucc_version, METH_NOARGS, DLPY_DOC__UCC_VERSION},
    {"_check_cuda", check_cuda, METH_NOARGS, DLPY_DOC__CHECK_CUDA},
    {"_mpi_library", mpi_library, METH_NOARGS, DLPY_DOC__MPI_LIBRARY},
    {"_mpi_place", mpi_place, METH_NOARGS, DLPY_DOC__MPI_PLACE},
    DLPY_FUNCTION("_mpi_tell", mpi_tell_call, DLPY_DOC__MPI_TELL),
    {"_mpi_give_up", mpi_give_up, METH_NOARGS, DLPY_DOC__MPI_GIVE_UP},
    {0},
};

const dlpy_part dlpy_library_functions = {.functions = functions};
