/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/log_reader.h"

#include <stdatomic.h>

#include "base/log.h"
#include "python/module/gil.h"
#include "python/module/parts.h"

/* A call that hangs may hold the GIL; an import may take a while. */
#define READER_LIMIT (5 * DL_SECOND)
#define SYNC_LIMIT DL_SECOND
/* A handler may hang, and the process must be able to exit. */
#define EXIT_LIMIT (5 * DL_SECOND)

static atomic_bool has_handlers; /* as of the last check */
/* Points to the length of logging._handlerList, which is never freed; and its value at
 * the last check. */
static _Atomic(const Py_ssize_t *) length;
static atomic_llong seen_length;

static long long
length_now(void)
{
    const Py_ssize_t *place = atomic_load_explicit(&length, memory_order_acquire);

    return place == NULL ? 0 : (long long)__atomic_load_n(place, __ATOMIC_RELAXED);
}

static bool
is_wanted(void)
{
    return atomic_load_explicit(&has_handlers, memory_order_relaxed)
           || length_now() != atomic_load_explicit(&seen_length, memory_order_relaxed);
}

static void
find_length(PyObject *logging)
{
    if (atomic_load(&length) != NULL) {
        return;
    }
    PyObject *handlers = PyObject_GetAttrString(logging, "_handlerList");
    if (handlers != NULL && PyList_CheckExact(handlers)) {
        /* The reference is never dropped: threads read the list until the process
         * ends. */
        atomic_store(&length, &((PyVarObject *)handlers)->ob_size);
    } else {
        Py_XDECREF(handlers);
    }
}

/* Also returns false if the logger does not exist, or is a placeholder. */
static bool
has_some(PyObject *logger)
{
    PyObject *handlers =
        logger == NULL ? NULL : PyObject_GetAttrString(logger, "handlers");
    Py_ssize_t count = handlers == NULL ? 0 : PyObject_Size(handlers);

    Py_XDECREF(handlers);
    return count > 0;
}

static PyObject *
own_logger(PyObject *root)
{
    PyObject *manager = PyObject_GetAttrString(root, "manager");
    PyObject *loggers =
        manager == NULL ? NULL : PyObject_GetAttrString(manager, "loggerDict");
    PyObject *logger =
        loggers == NULL ? NULL : PyMapping_GetItemString(loggers, "distlite");

    Py_XDECREF(loggers);
    Py_XDECREF(manager);
    return logger;
}

static bool
look(PyObject *logging)
{
    PyObject *root = PyObject_GetAttrString(logging, "root");

    if (root == NULL) {
        return false;
    }
    bool is_there = has_some(root);
    if (!is_there) {
        PyObject *logger = own_logger(root);
        is_there = has_some(logger);
        Py_XDECREF(logger);
    }
    Py_DECREF(root);
    return is_there;
}

/* Does not import logging: a program that has not imported it has no handlers. */
void
dlpy_log_look(void)
{
    PyObject *logging = PyMapping_GetItemString(PyImport_GetModuleDict(), "logging");

    if (logging != NULL) {
        find_length(logging);
        /* In this order: if a handler is created in between, the next check finds
         * it. */
        atomic_store(&seen_length, length_now());
        atomic_store(&has_handlers, look(logging));
        Py_DECREF(logging);
    }
    PyErr_Clear();
}

static bool
call_python(void)
{
    PyObject *module = PyImport_ImportModule("distlite.tools.log_records");
    PyObject *result =
        module == NULL ? NULL : PyObject_CallMethod(module, "deliver", NULL);

    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(module);
    return result != NULL;
}

static bool
read_lines(void)
{
    if (!dlpy_may_enter()) {
        return false;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    dl_log_queue_begin();
    bool is_good = call_python();
    PyGILState_Release(gil);
    return is_good;
}

void
dlpy_log_sync(void)
{
    if (dl_log_queue_is_idle()) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    dl_log_queue_flush(dl_deadline_after(SYNC_LIMIT));
    Py_END_ALLOW_THREADS
}

static PyObject *
next_line(PyObject *module, PyObject *unused)
{
    dl_log_line line;

    (void)module;
    (void)unused;
    if (!dl_log_queue_take(&line)) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(iiLny#)", (int)line.level, line.rank, (long long)line.time,
                         (Py_ssize_t)line.head, line.bytes, (Py_ssize_t)line.size);
}

static PyObject *
look_for_handlers(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    dlpy_log_look();
    Py_RETURN_NONE;
}

static PyObject *
flush(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    dl_log_queue_flush(dl_deadline_after(EXIT_LIMIT));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
close_queue(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    dl_log_queue_flush(dl_deadline_after(SYNC_LIMIT));
    dl_log_queue_close();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
put_line(PyObject *module, PyObject *text)
{
    const char *bytes = PyUnicode_AsUTF8(text);

    (void)module;
    if (bytes == NULL) {
        return NULL;
    }
    dl_log(DL_LOG_WARNING, "%s", bytes);
    Py_RETURN_NONE;
}

/* An object is turned into text only if the line is written. */
static PyObject *
put_object(dl_log_level level, PyObject *object)
{
    if (!dl_log_is_on(level)) {
        Py_RETURN_NONE;
    }
    PyObject *text = PyObject_Str(object);
    const char *bytes = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (bytes != NULL) {
        dl_log(level, "%s", bytes);
    }
    Py_XDECREF(text);
    return bytes == NULL ? NULL : Py_NewRef(Py_None);
}

static PyObject *
put_debug_line(PyObject *module, PyObject *object)
{
    (void)module;
    return put_object(DL_LOG_DEBUG, object);
}

static PyObject *
put_trace_line(PyObject *module, PyObject *object)
{
    (void)module;
    return put_object(DL_LOG_TRACE, object);
}

static PyMethodDef functions[] = {
    {"_log_debug", put_debug_line, METH_O,
     "_log_debug($module, object, /)\n--\n\n"
     "Puts a line marked \"debug\" into the core's log, where these are shown."},
    {"_log_trace", put_trace_line, METH_O,
     "_log_trace($module, object, /)\n--\n\n"
     "Puts a line marked \"trace\" into the core's log, where these are shown."},
    {"_next_log_line", next_line, METH_NOARGS,
     "_next_log_line($module, /)\n--\n\n"
     "Returns the next line as (level, rank, nanoseconds since 1970, offset of the "
     "text, whole line); None if there is none."},
    {"_look_for_log_handlers", look_for_handlers, METH_NOARGS,
     "_look_for_log_handlers($module, /)\n--\n\n"
     "Checks again whether logging has handlers for lines of the log."},
    {"_flush_log", flush, METH_NOARGS,
     "_flush_log($module, /)\n--\n\n"
     "Waits, for a few seconds at most, until handlers have received all lines."},
    {"_close_log", close_queue, METH_NOARGS,
     "_close_log($module, /)\n--\n\n"
     "Writes the remaining lines, and all later ones, to standard error."},
    {"_log_warning", put_line, METH_O,
     "_log_warning($module, text, /)\n--\n\n"
     "Puts a line into the core's log."},
    {0},
};

int
dlpy_add_log_reader(PyObject *module)
{
    static const dl_log_reader reader = {
        .is_wanted = is_wanted,
        .read = read_lines,
        .limit = READER_LIMIT,
    };

    dlpy_log_look();
    dl_log_queue_open(&reader);
    return dlpy_add_functions(module, functions);
}
