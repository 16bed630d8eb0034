/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module functions for debugging: the debug level, which is read from the
 * environment when the module is imported, the log, the deadlock detector's settings,
 * and monitored_barrier. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "pg/agree/deadlock.h"
#include "pg/agree/own_waits.h"
#include "python/groups/collective_call.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"

#define VARIABLE "TORCH_DISTRIBUTED_DEBUG"

static int
read_level(const char *text)
{
    if (dl_debug_level_read(text) == DL_OK) {
        return 0;
    }
    PyErr_SetString(PyExc_ValueError, dl_last_error()->text);
    return -1;
}

static PyObject *
get_level(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromLong(dl_debug_level_get());
}

static PyObject *
set_level(PyObject *Py_UNUSED(module), PyObject *level)
{
    int64_t number;

    if (dlpy_int64_from(level, "level", &number) < 0) {
        return NULL;
    }
    if (number < DL_DEBUG_OFF || number > DL_DEBUG_DETAIL) {
        PyErr_Format(PyExc_ValueError, "%R is not a debug level", level);
        return NULL;
    }
    dl_debug_level_set((dl_debug_level)number);
    Py_RETURN_NONE;
}

/* Returns the number of Python threads except the calling one, which is a thread of the
 * library that Python did not know before.  Returns -1 while the interpreter is
 * finalizing and must not be entered. */
static int
count_threads(void)
{
    int count = -1;

    if (!dlpy_may_enter()) {
        return -1;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *sys = PyImport_ImportModule("sys");
    PyObject *frames =
        sys == NULL ? NULL : PyObject_CallMethod(sys, "_current_frames", NULL);
    Py_XDECREF(sys);
    if (frames != NULL) {
        count = (int)PyObject_Size(frames);
        Py_DECREF(frames);
    }
    PyErr_Clear();
    PyGILState_Release(gil);
    return count;
}

static PyObject *
deadlock_configure(PyObject *module, PyObject *Py_UNUSED(unused))
{
    dl_status status = dl_deadlock_configure();

    return status == DL_OK
               ? Py_NewRef(Py_None)
               : dlpy_raise_collective(dlpy_state_of_module(module), status);
}

/* Takes the value from os.environ: getenv(3) does not see all changes that a program
 * makes there. */
static PyObject *
set_level_from(PyObject *Py_UNUSED(module), PyObject *text)
{
    const char *value = NULL;

    if (text != Py_None && (value = PyUnicode_AsUTF8(text)) == NULL) {
        return NULL;
    }
    return read_level(value) < 0 ? NULL : Py_NewRef(Py_None);
}

/* The writing end of a pair of sockets whose other end distlite/tools/log_capture.py
 * reads.  It is closed in a forked child only, as any thread may be about to use it;
 * dup3(2) replaces the sockets behind it. */
static atomic_int log_socket = -1;

static bool
pass_line(const char *line, size_t size)
{
    int fd = atomic_load(&log_socket);

    return fd >= 0 && send(fd, line, size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

static PyObject *
capture_log(PyObject *Py_UNUSED(module), PyObject *number)
{
    int own = atomic_load(&log_socket);
    int64_t fd;

    if (dlpy_int64_from(number, "fd", &fd) < 0) {
        return NULL;
    }
    if (fd >= 0) {
        own = own < 0 ? fcntl((int)fd, F_DUPFD_CLOEXEC, 0)
                      : dup3((int)fd, own, O_CLOEXEC);
        if (own < 0) {
            return PyErr_SetFromErrno(PyExc_OSError);
        }
    } else if (own >= 0) {
        close(own);
        own = -1;
    }
    atomic_store(&log_socket, own);
    Py_RETURN_NONE;
}

static PyObject *
log_warning(PyObject *Py_UNUSED(module), PyObject *text)
{
    const char *bytes = PyUnicode_AsUTF8(text);

    if (bytes == NULL) {
        return NULL;
    }
    dl_log(DL_LOG_WARNING, "%s", bytes);
    Py_RETURN_NONE;
}

static PyObject *
run_barrier(dlpy_collective *self, bool waits_for_all, dl_deadline deadline)
{
    dl_waiting waiting;
    dl_status status;

    dlpy_waiting_enter(self->state, &waiting, dl_waiting_copy, "monitored_barrier()",
                       deadline);
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_monitored_barrier(self->core, waits_for_all, deadline);
    Py_END_ALLOW_THREADS
    dl_waiting_end(&waiting);
    Py_CLEAR(self->group);
    return status == DL_OK ? Py_NewRef(Py_None)
                           : dlpy_raise_collective(self->state, status);
}

static PyObject *
monitored_barrier(PyObject *module, PyObject *const *args, Py_ssize_t count,
                  PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "monitored_barrier",
        .names = {"group", "timeout", "wait_all_ranks"},
    };
    dlpy_call call = {args, count, keywords};
    PyObject *values[3];
    dlpy_collective self = {0};
    int64_t timeout;
    bool waits_for_all = false;

    if (dlpy_take_arguments(&signature, call, values) < 0
        || (values[2] != NULL
            && dlpy_bool_from(values[2], "wait_all_ranks", &waits_for_all) < 0)) {
        return NULL;
    }
    int begun = dlpy_collective_begin_sync(module, &signature, values, 0, &self);
    if (begun <= 0) {
        return dlpy_collective_answer(&self, begun);
    }
    if (dlpy_timeout_from(values[1], dlpy_collective_timeout(&self), &timeout) < 0) {
        return dlpy_collective_give_up(&self);
    }
    return run_barrier(&self, waits_for_all, dl_deadline_after(timeout));
}

static PyMethodDef functions[] = {
    {"_capture_log", capture_log, METH_O, DLPY_DOC__CAPTURE_LOG},
    {"_log_warning", log_warning, METH_O, DLPY_DOC__LOG_WARNING},
    {"_deadlock_configure", deadlock_configure, METH_NOARGS,
     DLPY_DOC__DEADLOCK_CONFIGURE},
    DLPY_FUNCTION("monitored_barrier", monitored_barrier, DLPY_DOC_MONITORED_BARRIER),
    {"_get_debug_level", get_level, METH_NOARGS, DLPY_DOC__GET_DEBUG_LEVEL},
    {"_set_debug_level", set_level, METH_O, DLPY_DOC__SET_DEBUG_LEVEL},
    {"_set_debug_level_from", set_level_from, METH_O, DLPY_DOC__SET_DEBUG_LEVEL_FROM},
    {0},
};

static int
begin_debugging(dlpy_state *Py_UNUSED(state), PyObject *Py_UNUSED(module))
{
    /* Must come before anything that depends on the level is created. */
    if (read_level(getenv(VARIABLE)) < 0) {
        return -1;
    }
    /* Reads the log's level from the environment before there are other threads, while
     * the program may be changing the environment. */
    (void)dl_log_is_on(DL_LOG_WARNING);
    dl_log_install(pass_line);
    dl_own_waits_count_threads(count_threads);
    return 0;
}

const dlpy_part dlpy_debug_functions = {.begin = begin_debugging,
                                        .functions = functions};
