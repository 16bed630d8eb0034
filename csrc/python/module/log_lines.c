/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/module/log_lines.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/thread.h"
#include "python/module/docstrings.h"
#include "python/module/gil.h"
#include "python/module/parts.h"

#define QUEUE_LIMIT 256
#define SYNC_LIMIT DL_SECOND
/* A handler may hang, and the process must be able to exit. */
#define EXIT_LIMIT (5 * DL_SECOND)

static atomic_bool is_wanted; /* there were handlers when Python looked last */
static atomic_bool is_idle = true;
/* Set on the queue's own thread: lines that a handler causes would never end. */
static _Thread_local bool is_deliverer;

/* Static: untouched pages cost no memory, and an allocation could fail. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_thread;
    bool is_closed;
    size_t first;
    size_t count;
    dl_log_line lines[QUEUE_LIMIT];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Runs in a forked child: the parent delivers its own lines, and the thread does not
 * exist here. */
static void
forget_parent(void)
{
    pthread_mutex_init(&queue.lock, NULL);
    dl_condition_init(&queue.changed);
    queue.has_thread = false;
    queue.first = queue.count = 0;
    atomic_store(&is_idle, true);
    is_deliverer = false;
}

static void
init_queue(void)
{
    dl_condition_init(&queue.changed);
    pthread_atfork(NULL, NULL, forget_parent);
}

static bool
take_locked(dl_log_line *line)
{
    if (queue.count == 0) {
        return false;
    }
    *line = queue.lines[queue.first];
    queue.first = (queue.first + 1) % QUEUE_LIMIT;
    queue.count--;
    return true;
}

/* Calls deliver() of tools/log_records.py.  Returns false if that cannot be done. */
static bool
deliver(const dl_log_line *line)
{
    if (!dlpy_may_enter()) {
        return false;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *module = PyImport_ImportModule("distlite.tools.log_records");
    PyObject *result =
        module == NULL
            ? NULL
            : PyObject_CallMethod(module, "deliver", "iiLny#", (int)line->level,
                                  line->rank, (long long)line->time,
                                  (Py_ssize_t)line->head, line->bytes,
                                  (Py_ssize_t)line->size);
    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(module);
    PyGILState_Release(gil);
    return result != NULL;
}

static void *
run_deliverer(void *Py_UNUSED(unused))
{
    dl_log_line line;

    is_deliverer = true;
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        while (!take_locked(&line)) {
            atomic_store(&is_idle, true);
            pthread_cond_broadcast(&queue.changed);
            pthread_cond_wait(&queue.changed, &queue.lock);
        }
        pthread_mutex_unlock(&queue.lock);
        if (!deliver(&line)) {
            dl_log_write(&line);
        }
        pthread_mutex_lock(&queue.lock);
    }
    return NULL;
}

/* Restores the thread's last error after a failure: the line may be about that
 * error. */
static bool
start_thread_locked(void)
{
    pthread_t thread;
    dl_error error = *dl_last_error();

    if (!queue.has_thread && dl_thread_start(&thread, run_deliverer, NULL) == DL_OK) {
        pthread_detach(thread);
        queue.has_thread = true;
    } else if (!queue.has_thread) {
        (void)dl_rethrow(&error);
    }
    return queue.has_thread;
}

/* Queues a copy of the line for the handlers, unless the queue is full. */
static bool
receive(const dl_log_line *line)
{
    if (is_deliverer || !atomic_load_explicit(&is_wanted, memory_order_relaxed)) {
        return false;
    }
    pthread_mutex_lock(&queue.lock);
    bool is_taken =
        !queue.is_closed && queue.count < QUEUE_LIMIT && start_thread_locked();
    if (is_taken) {
        queue.lines[(queue.first + queue.count++) % QUEUE_LIMIT] = *line;
        atomic_store(&is_idle, false);
        pthread_cond_broadcast(&queue.changed);
    }
    pthread_mutex_unlock(&queue.lock);
    return is_taken;
}

/* Waits until the handlers have received all lines. */
static void
await_handlers(int64_t limit)
{
    dl_deadline deadline = dl_deadline_after(limit);

    if (is_deliverer) {
        return;
    }
    pthread_mutex_lock(&queue.lock);
    while (!atomic_load(&is_idle) && !dl_deadline_passed(deadline)) {
        dl_condition_wait_until(&queue.changed, &queue.lock, deadline.at);
    }
    pthread_mutex_unlock(&queue.lock);
}

/* Does not import logging: a program that has not imported it has no handlers. */
void
dlpy_log_check(void)
{
    PyObject *logging = PyMapping_GetItemString(PyImport_GetModuleDict(), "logging");
    PyObject *module =
        logging == NULL ? NULL : PyImport_ImportModule("distlite.tools.log_records");
    PyObject *found =
        module == NULL ? NULL : PyObject_CallMethod(module, "has_handlers", NULL);

    if (found != NULL || logging == NULL) {
        atomic_store(&is_wanted, found == Py_True);
    }
    PyErr_Clear();
    Py_XDECREF(found);
    Py_XDECREF(module);
    Py_XDECREF(logging);
}

void
dlpy_log_sync(void)
{
    if (is_deliverer || atomic_load_explicit(&is_idle, memory_order_acquire)) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    await_handlers(SYNC_LIMIT);
    Py_END_ALLOW_THREADS
}

static PyObject *
look_for_handlers(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    dlpy_log_check();
    Py_RETURN_NONE;
}

static PyObject *
flush_log(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Py_BEGIN_ALLOW_THREADS
    await_handlers(EXIT_LIMIT);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void
write_what_is_left(void)
{
    dl_log_line line;

    await_handlers(SYNC_LIMIT);
    pthread_mutex_lock(&queue.lock);
    queue.is_closed = true;
    while (take_locked(&line)) {
        pthread_mutex_unlock(&queue.lock);
        dl_log_write(&line);
        pthread_mutex_lock(&queue.lock);
    }
    pthread_mutex_unlock(&queue.lock);
}

static PyObject *
close_queue(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Py_BEGIN_ALLOW_THREADS
    write_what_is_left();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
put_line(PyObject *Py_UNUSED(module), PyObject *text)
{
    const char *bytes = PyUnicode_AsUTF8(text);

    if (bytes == NULL) {
        return NULL;
    }
    dlpy_log_check();
    dl_log(DL_LOG_WARNING, "%s", bytes);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_look_for_log_handlers", look_for_handlers, METH_NOARGS,
     DLPY_DOC__LOOK_FOR_LOG_HANDLERS},
    {"_flush_log", flush_log, METH_NOARGS, DLPY_DOC__FLUSH_LOG},
    {"_close_log", close_queue, METH_NOARGS, DLPY_DOC__CLOSE_LOG},
    {"_log_warning", put_line, METH_O, DLPY_DOC__LOG_WARNING},
    {0},
};

int
dlpy_add_log_lines(PyObject *module)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, init_queue);
    dl_log_install(receive);
    return dlpy_add_functions(module, functions);
}
