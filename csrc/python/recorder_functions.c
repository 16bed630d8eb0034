/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/recorder_functions.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pg/cpu/cpu_backend.h"
#include "pg/recorder.h"
#include "pg/recording_file.h"
#include "python/collective_call.h"
#include "python/errors.h"

static PyObject *
recording(PyObject *module, PyObject *unused)
{
    dl_buffer copy = {0};
    dl_status status = dl_recorder_snapshot(&copy);
    PyObject *result;

    (void)unused;
    if (status != DL_OK) {
        result = dlpy_raise_collective(dlpy_state_of_module(module), status);
    } else if (copy.size == 0) {
        result = Py_NewRef(Py_None);
    } else {
        result =
            PyBytes_FromStringAndSize((const char *)copy.data, (Py_ssize_t)copy.size);
    }
    dl_buffer_fini(&copy);
    return result;
}

/* NULL with an exception set: it cannot be mapped, or it is no recording. */
static PyObject *
snapshot_of(void *memory, size_t size)
{
    dl_recording_header header;

    if (!dl_recording_check(memory, size, &header)) {
        PyErr_SetString(PyExc_ValueError, "not a recording of this version");
        return NULL;
    }
    PyObject *copy =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)dl_recording_size(&header));
    if (copy != NULL) {
        dl_recording_snapshot(memory, &header, PyBytes_AS_STRING(copy));
    }
    return copy;
}

static PyObject *
read_recording(PyObject *module, PyObject *path)
{
    PyObject *name;
    struct stat found;
    void *memory = MAP_FAILED;
    PyObject *result = NULL;

    (void)module;
    if (!PyUnicode_FSConverter(path, &name)) {
        return NULL;
    }
    int fd = open(PyBytes_AS_STRING(name), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    Py_DECREF(name);
    if (fd >= 0 && fstat(fd, &found) == 0) {
        memory = mmap(NULL, found.st_size > 0 ? (size_t)found.st_size : 1, PROT_READ,
                      MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    } else {
        result = snapshot_of(memory, (size_t)found.st_size);
        munmap(memory, found.st_size > 0 ? (size_t)found.st_size : 1);
    }
    if (fd >= 0) {
        close(fd);
    }
    return result;
}

static PyObject *
recording_folders(PyObject *module, PyObject *unused)
{
    char path[PATH_MAX];
    PyObject *list = PyList_New(0);

    (void)module;
    (void)unused;
    for (int i = 0; list != NULL && dl_recording_folder(i, path); i++) {
        PyObject *text = PyUnicode_DecodeFSDefault(path);
        if (text == NULL || PyList_Append(list, text) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *
recording_identify(PyObject *module, PyObject *args)
{
    const char *job;
    int rank, size;

    (void)module;
    if (!PyArg_ParseTuple(args, "sii", &job, &rank, &size)) {
        return NULL;
    }
    dl_recorder_identify(job, rank, size);
    Py_RETURN_NONE;
}

static PyObject *
recording_report(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    dl_recorder_report();
    Py_RETURN_NONE;
}

static PyObject *
addresses(PyObject *module, PyObject *connected)
{
    const char *local = connected == Py_None ? NULL : PyUnicode_AsUTF8(connected);
    dl_buffer text = {0};
    PyObject *result = NULL;

    if (local == NULL && connected != Py_None) {
        return NULL;
    }
    dl_status status = dl_cpu_addresses(local, &text);
    if (status != DL_OK) {
        dlpy_raise_collective(dlpy_state_of_module(module), status);
    } else {
        result =
            PyUnicode_DecodeASCII((const char *)text.data, (Py_ssize_t)text.size, NULL);
    }
    dl_buffer_fini(&text);
    return result;
}

static PyMethodDef functions[] = {
    {"_recording", recording, METH_NOARGS,
     "_recording($module, /)\n--\n\n"
     "A snapshot of what this process's groups did; None if nothing is recorded."},
    {"_read_recording", read_recording, METH_O,
     "_read_recording($module, path, /)\n--\n\n"
     "A snapshot of another process's recording, or of a dump."},
    {"_recording_folders", recording_folders, METH_NOARGS,
     "_recording_folders($module, /)\n--\n\n"
     "Where recordings of this user may lie."},
    {"_recording_identify", recording_identify, METH_VARARGS,
     "_recording_identify($module, job, rank, size, /)\n--\n\n"},
    {"_recording_report", recording_report, METH_NOARGS,
     "_recording_report($module, /)\n--\n\n"
     "Notes that this process writes the table of its job now."},
    {"_addresses", addresses, METH_O,
     "_addresses($module, connected, /)\n--\n\n"
     "Lines of a name and an address: the one chosen, then the interfaces'."},
    {0},
};

int
dlpy_add_recorder_functions(PyObject *module)
{
    return dlpy_add_functions(module, functions);
}

/* Told on standard error, and whatever goes wrong with it is not worth more words: the
 * error itself is on its way. */
void
dlpy_report_failure(void)
{
    if (!dl_recorder_take_failure()) {
        return;
    }
    dl_error error = *dl_last_error();
    PyObject *report = PyImport_ImportModule("distlite.tools.failure");
    PyObject *result =
        report == NULL ? NULL : PyObject_CallMethod(report, "report", NULL);

    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(report);
    dl_fail_again(&error);
}
