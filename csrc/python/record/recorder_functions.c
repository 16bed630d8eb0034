/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module functions through which distlite.tools reads the recorder. */
#include <errno.h>
#include <limits.h>

#include "pg/cpu/cpu_backend.h"
#include "pg/fingerprint.h"
#include "pg/record/recorder.h"
#include "pg/record/recording_file.h"
#include "pg/record/waiting.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"
#include "python/record/events.h"

static PyObject *
recording(PyObject *module, PyObject *Py_UNUSED(unused))
{
    dl_buffer copy = {0};
    dl_status status = dl_recorder_snapshot(&copy);
    PyObject *result;

    if (status != DL_OK) {
        result = dlpy_raise_collective(dlpy_state_of_module(module), status);
    } else if (copy.size == 0) {
        result = Py_NewRef(Py_None);
    } else {
        result = dlpy_object_from(dl_buffer_bytes(&copy));
    }
    dl_buffer_fini(&copy);
    return result;
}

static PyObject *
read_recording(PyObject *Py_UNUSED(module), PyObject *path)
{
    PyObject *name;
    dl_buffer copy = {0};
    PyObject *result = NULL;

    if (!PyUnicode_FSConverter(path, &name)) {
        return NULL;
    }
    int error = dl_recording_read(PyBytes_AS_STRING(name), &copy);
    Py_DECREF(name);
    if (error == DL_NO_RECORDING) {
        PyErr_SetString(PyExc_ValueError, "not a recording of this version");
    } else if (error != 0) {
        errno = error;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    } else {
        result = dlpy_object_from(dl_buffer_bytes(&copy));
    }
    dl_buffer_fini(&copy);
    return result;
}

static PyObject *
recording_folders(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    char path[PATH_MAX];
    PyObject *list = PyList_New(0);

    for (int i = 0; list != NULL && dl_recording_folder(i, path); i++) {
        if (dlpy_append(list, PyUnicode_DecodeFSDefault(path)) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
recording_identify(PyObject *Py_UNUSED(module), PyObject *const *values)
{
    const char *job;
    int rank, size;

    if (dlpy_name_from(values[0], "job", &job) < 0
        || dlpy_rank_from(values[1], "rank", &rank) < 0
        || dlpy_rank_from(values[2], "size", &size) < 0) {
        return NULL;
    }
    dl_recorder_identify(job, rank, size);
    Py_RETURN_NONE;
}

DLPY_PARSED(recording_identify, "_recording_identify", 3, "job", "rank", "size")

static PyObject *
recording_make(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    dl_recorder_make();
    Py_RETURN_NONE;
}

/* The wait that the package's Python code shows for this thread. */
static _Thread_local dl_waiting shown;
static _Thread_local char shown_text[DL_WAIT_ROW_TEXT];

static PyObject *
show_wait(PyObject *module, PyObject *wanted)
{
    const char *text = wanted == Py_None ? "" : PyUnicode_AsUTF8(wanted);

    if (text == NULL) {
        return NULL;
    }
    if (text[0] == '\0') {
        dl_waiting_end(&shown);
        Py_RETURN_FALSE;
    }
    if (dl_slice_current != NULL || !dl_recorder_is_on()) {
        Py_RETURN_FALSE;
    }
    snprintf(shown_text, sizeof shown_text, "%s", text);
    dlpy_waiting_enter(dlpy_state_of_module(module), &shown, dl_waiting_copy,
                       shown_text, dl_deadline_after(-1));
    dl_waiting_show(&shown);
    Py_RETURN_TRUE;
}

static PyObject *
recordings_sweep(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    dl_recordings_sweep();
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

static PyObject *
op_row(int op)
{
    /* The recording tells receives from any rank by a name of their own. */
    const char *name = op == DL_RECV_ANY ? "recv_any" : dl_op_type_name((uint8_t)op);

    return Py_BuildValue("sO", name,
                         dl_op_type_reduces((uint8_t)op) ? Py_True : Py_False);
}

static PyObject *
dtype_row(int dtype)
{
    return Py_BuildValue("sn", dl_dtype_name((dl_dtype)dtype),
                         (Py_ssize_t)dl_dtype_size((dl_dtype)dtype));
}

static PyObject *
reduce_op_row(int op)
{
    return PyUnicode_FromString(dl_reduce_op_name((dl_reduce_op)op));
}

static PyObject *
status_row(int status)
{
    return PyUnicode_FromString(dl_status_name((dl_status)status));
}

static PyObject *
list_rows(PyObject *(*make_row)(int number), int count)
{
    PyObject *rows = PyList_New(0);

    for (int i = 0; rows != NULL && i < count; i++) {
        if (dlpy_append(rows, make_row(i)) < 0) {
            Py_CLEAR(rows);
        }
    }
    return rows;
}

static PyObject *
recording_names(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("NNNN", list_rows(op_row, DL_OP_TYPE_COUNT),
                         list_rows(dtype_row, DL_DTYPE_COUNT),
                         list_rows(reduce_op_row, DL_REDUCE_OP_COUNT),
                         list_rows(status_row, DL_STATUS_LAST + 1));
}

static PyObject *
set_hooked(PyObject *Py_UNUSED(module), PyObject *has_hooks)
{
    DLPY_STORE(dlpy_has_hooks, has_hooks == Py_True);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_set_hooked", set_hooked, METH_O, DLPY_DOC__SET_HOOKED},
    {"_recording", recording, METH_NOARGS, DLPY_DOC__RECORDING},
    {"_read_recording", read_recording, METH_O, DLPY_DOC__READ_RECORDING},
    {"_recording_folders", recording_folders, METH_NOARGS, DLPY_DOC__RECORDING_FOLDERS},
    {"_recording_make", recording_make, METH_NOARGS, DLPY_DOC__RECORDING_MAKE},
    {"_recording_names", recording_names, METH_NOARGS, DLPY_DOC__RECORDING_NAMES},
    {"_show_wait", show_wait, METH_O, DLPY_DOC__SHOW_WAIT},
    DLPY_FUNCTION("_recording_identify", recording_identify_call,
                  DLPY_DOC__RECORDING_IDENTIFY),
    {"_recordings_sweep", recordings_sweep, METH_NOARGS, DLPY_DOC__RECORDINGS_SWEEP},
    {"_addresses", addresses, METH_O, DLPY_DOC__ADDRESSES},
    {0},
};

const dlpy_part dlpy_recorder_functions = {.functions = functions};
