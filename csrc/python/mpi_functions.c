/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The MPI functions that creating the default group needs: which library is used, the
 * rank and size of this process, and the address at which rank 0 serves the store. */
#include <string.h>

#include "pg/mpi/mpi_backend.h"
#include "python/arguments.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/library_roots.h"
#include "python/parts.h"

/* The size of what rank 0 may send, which is an address. */
#define TELL_SIZE 1024

static PyObject *
raise(PyObject *module, dl_status status)
{
    return dlpy_raise_collective(dlpy_state_of_module(module), status);
}

static PyObject *
mpi_library(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    const char *text, *path;

    if (dlpy_set_library_roots() < 0) {
        return NULL;
    }
    dl_status status = dl_mpi_probe(&text, &path);
    return status == DL_OK ? Py_BuildValue("ss", text, path) : raise(module, status);
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
    return status == DL_OK ? Py_BuildValue("ii", rank, size) : raise(module, status);
}

static PyObject *
mpi_tell(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {"_mpi_tell", 2, {"text", "timeout"}};
    PyObject *values[2];
    char text[TELL_SIZE] = "";
    const char *told;
    int64_t timeout;
    dl_status status;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_name_from(values[0], "text", &told) < 0
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
    status = dl_mpi_tell(text, sizeof text, dl_deadline_after(timeout));
    Py_END_ALLOW_THREADS
    return status == DL_OK ? PyUnicode_FromString(text) : raise(module, status);
}

static PyObject *
mpi_give_up(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    dl_mpi_give_up();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_mpi_library", mpi_library, METH_NOARGS, "_mpi_library($module, /)\n--\n\n"},
    {"_mpi_place", mpi_place, METH_NOARGS, "_mpi_place($module, /)\n--\n\n"},
    DLPY_FUNCTION("_mpi_tell", mpi_tell,
                  "_mpi_tell($module, /, text, timeout)\n--\n\n"),
    {"_mpi_give_up", mpi_give_up, METH_NOARGS, "_mpi_give_up($module, /)\n--\n\n"},
    {0},
};

int
dlpy_add_mpi_functions(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
