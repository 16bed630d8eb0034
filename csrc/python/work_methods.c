/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdbool.h>

#include "pg/device/device.h"
#include "python/arguments.h"
#include "python/convert.h"
#include "python/docstrings.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/work_object.h"

/* For a Work that Python constructs, a method that its class does not define. */
static PyObject *
refuse_own(PyObject *object, const char *method)
{
    PyErr_Format(PyExc_NotImplementedError,
                 "%s does not define %s(): a Work that Python constructs has no other",
                 Py_TYPE(object)->tp_name, method);
    return NULL;
}

static PyObject *
raise_result(dlpy_work *self, dl_status status)
{
    return dlpy_raise_collective(self->state, status);
}

/* Ends the profiler's event with the operation, so that a profiler that is turned off
 * next has seen its end. */
static void
end_event(dlpy_work *self)
{
    PyObject *type, *value, *trace;
    PyObject *event = self->event;

    if (event == NULL || !dl_work_is_done(self->work)) {
        return;
    }
    self->event = NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = PyObject_CallMethod(event, "end", NULL);
    if (done == NULL) {
        PyErr_WriteUnraisable(event);
    }
    Py_XDECREF(done);
    Py_DECREF(event);
    PyErr_Restore(type, value, trace);
}

/* Returns whether the operation has ended, without waiting. */
static bool
has_ended(dlpy_work *self)
{
    dl_work *work = self->work;

    if (work == NULL) {
        return false;
    }
    if (!dl_work_is_done(work) && work->ops->poll != NULL) {
        work->ops->poll(work);
    }
    end_event(self);
    return dl_work_is_done(work);
}

/* On a device the current stream waits rather than the caller.  For arrays that name
 * streams of their own, each of these streams waits as well. */
static PyObject *
order_stream(dlpy_work *self)
{
    void *stream;

    int found = dlpy_cuda_current_stream(&self->origin, &stream);

    if (found < 0) {
        return NULL;
    }
    dl_status status = dl_work_order(self->work, stream);
    if (status == DL_OK && found > 0) {
        status = dl_work_order_arrays(self->work);
    }
    if (status != DL_OK) {
        return raise_result(self, status);
    }
    dlpy_completions_drain(self->completions);
    Py_RETURN_TRUE;
}

/* Withdraws a pending message whose array has moved: it would be waited for only to
 * fail. */
static bool
has_lost_memory(dlpy_work *self)
{
    dl_work *work = self->work;

    if (work->ops->withdraw == NULL || dl_work_is_done(work)
        || dl_guard_check(dlpy_guard_core(&self->guard)) == DL_OK) {
        return false;
    }
    dl_error why = *dl_last_error();
    Py_BEGIN_ALLOW_THREADS
    work->ops->withdraw(work);
    Py_END_ALLOW_THREADS
    dl_fail_again(&why);
    return true;
}

static PyObject *
work_wait(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static const dlpy_signature signature = {.function = "wait", .names = {"timeout"}};
    dlpy_work *self = work_of(object);
    PyObject *values[1];
    int64_t timeout;
    dl_status status;
    dlpy_gil gil;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, names}, values) < 0
        || dlpy_timeout_from(values[0], -1, &timeout) < 0) {
        return NULL;
    }
    if (self->work == NULL) {
        return refuse_own(object, "wait");
    }
    /* torch's default, zero, means no limit besides the operation's own. */
    timeout = timeout == 0 ? -1 : timeout;
    if (has_lost_memory(self)) {
        return raise_result(self, DL_BACKEND);
    }
    if (dl_work_is_on_device(self->work)) {
        /* Done even if the caller then waits: in a capture only the stream order
         * counts. */
        PyObject *ordered = order_stream(self);
        if (ordered == NULL || (timeout < 0 && !dl_device_blocks())) {
            return ordered;
        }
        Py_DECREF(ordered);
    }
    dlpy_gil_leave(&gil, self->work->is_brief);
    status = dl_work_wait(self->work, dl_deadline_after(timeout));
    status = dlpy_gil_return(&gil, status);
    if (status != DL_OK) {
        raise_result(self, status);
        end_event(self);
        return NULL;
    }
    end_event(self);
    dlpy_completions_drain(self->completions);
    Py_RETURN_TRUE;
}

static PyObject *
work_is_completed(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(has_ended(work_of(object)));
}

static PyObject *
work_is_success(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);

    return PyBool_FromLong(has_ended(self) && self->work->status == DL_OK);
}

static PyObject *
work_exception(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);
    PyObject *type, *value, *trace;

    if (!has_ended(self) || self->work->status == DL_OK) {
        Py_RETURN_NONE;
    }
    raise_result(self, dl_work_result(self->work));
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

static PyObject *
list_of(PyObject *outputs)
{
    if (PyTuple_Check(outputs)) {
        return PySequence_List(outputs);
    }
    PyObject *list = PyList_New(0);
    if (list != NULL && outputs != Py_None && PyList_Append(list, outputs) < 0) {
        Py_CLEAR(list);
    }
    return list;
}

static PyObject *
work_result(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);

    if (self->work == NULL) {
        return refuse_own(object, "result");
    }
    if (!has_ended(self)) {
        /* On a device the outputs may be used by subsequent work of the stream. */
        if (!dl_work_is_on_device(self->work)) {
            PyErr_SetString(PyExc_RuntimeError,
                            "Work needs to be completed before calling result(). "
                            "Should call wait() before result().");
            return NULL;
        }
    } else if (self->work->status != DL_OK) {
        return raise_result(self, dl_work_result(self->work));
    }
    if (self->outputs == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "result() not implemented.");
        return NULL;
    }
    if (!PyList_Check(self->outputs)) {
        /* The list is created on first use and is the same every time. */
        PyObject *list = list_of(self->outputs);
        if (list == NULL) {
            return NULL;
        }
        Py_SETREF(self->outputs, list);
    }
    return Py_NewRef(self->outputs);
}

static PyObject *
work_source_rank(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);
    dl_work *work = self->work;
    bool is_receive = work != NULL && (work->op == DL_RECV || work->op == DL_RECV_ANY);

    if (is_receive && !has_ended(self)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "sourceRank() is known once the message has been received; "
                        "call wait() before source_rank()");
        return NULL;
    }
    if (is_receive && work->status != DL_OK) {
        return raise_result(self, dl_work_result(work));
    }
    if (!is_receive || work->source < 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "sourceRank() may only be called on work objects that "
                        "correspond to a recv or recv-from-any call.");
        return NULL;
    }
    return PyLong_FromLong(work->source);
}

static PyObject *
work_synchronize(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    PyObject *waited = work_of(object)->work == NULL
                           ? PyObject_CallMethod(object, "wait", NULL)
                           : work_wait(object, NULL, 0, NULL);

    if (waited == NULL) {
        return NULL;
    }
    Py_DECREF(waited);
    Py_RETURN_NONE;
}

/* torch's OpType.UNKNOWN. */
enum { OP_UNKNOWN = 100 };

static PyObject *
work_op_type(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dl_work *work = work_of(object)->work;

    return PyLong_FromLong(work == NULL ? OP_UNKNOWN : work->op);
}

/* Returns the end time on the clock of time.monotonic(), or None. */
static PyObject *
work_ended_at(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    if (!has_ended(work_of(object))) {
        Py_RETURN_NONE;
    }
    return PyFloat_FromDouble((double)work_of(object)->work->ended_at * 1e-9);
}

static PyObject *
work_get_future(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);

    if (self->work == NULL) {
        return refuse_own(object, "get_future");
    }
    if (self->state->future_of_work == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "distlite is not imported");
        return NULL;
    }
    return PyObject_CallOneArg(self->state->future_of_work, object);
}

/* Returns a Future of the outcome as a number.  Python subclasses may have a Future of
 * their own. */
static PyObject *
work_get_future_result(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    PyObject *future = PyObject_CallMethod(object, "get_future", NULL);

    if (future == NULL) {
        return NULL;
    }
    PyObject *outcome = PyObject_CallMethod(future, "_outcome", NULL);
    Py_DECREF(future);
    return outcome;
}

/* The same error as torch's gloo. */
static PyObject *
work_get_duration(PyObject *Py_UNUSED(object), PyObject *Py_UNUSED(nothing))
{
    PyErr_SetString(PyExc_RuntimeError, "This Backend doesn't support getDuration.");
    return NULL;
}

PyObject *
dlpy_work_await(PyObject *object)
{
    PyObject *future = PyObject_CallMethod(object, "get_future", NULL);

    if (future == NULL) {
        return NULL;
    }
    PyObject *iterator = PyObject_CallMethod(future, "__await__", NULL);
    Py_DECREF(future);
    return iterator;
}

static PyObject *
work_call_when_done(PyObject *object, PyObject *callback)
{
    dlpy_work *self = work_of(object);

    if (self->work == NULL) {
        return refuse_own(object, "get_future");
    }
    if (self->callbacks == NULL) {
        self->callbacks = PyList_New(0);
    }
    if (self->callbacks == NULL || PyList_Append(self->callbacks, callback) < 0) {
        return NULL;
    }
    dlpy_work_watch(self);
    dlpy_completions_want(self->completions, &self->completion);
    Py_RETURN_NONE;
}

static PyObject *
work_take_callbacks(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);
    PyObject *callbacks = self->callbacks;

    self->callbacks = NULL;
    return callbacks == NULL ? PyList_New(0) : callbacks;
}

PyMethodDef dlpy_work_methods[] = {
    {"wait", (PyCFunction)(void (*)(void))work_wait, METH_FASTCALL | METH_KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n" DLPY_DOC_WORK_WAIT},
    {"is_completed", work_is_completed, METH_NOARGS,
     "is_completed($self, /)\n--\n\n" DLPY_DOC_WORK_IS_COMPLETED},
    {"is_success", work_is_success, METH_NOARGS,
     "is_success($self, /)\n--\n\n" DLPY_DOC_WORK_IS_SUCCESS},
    {"exception", work_exception, METH_NOARGS,
     "exception($self, /)\n--\n\n" DLPY_DOC_WORK_EXCEPTION},
    {"result", work_result, METH_NOARGS,
     "result($self, /)\n--\n\n" DLPY_DOC_WORK_RESULT},
    {"source_rank", work_source_rank, METH_NOARGS,
     "source_rank($self, /)\n--\n\n" DLPY_DOC_WORK_SOURCE_RANK},
    {"_source_rank", work_source_rank, METH_NOARGS, "_source_rank($self, /)\n--\n\n"},
    {"synchronize", work_synchronize, METH_NOARGS,
     "synchronize($self, /)\n--\n\n" DLPY_DOC_WORK_SYNCHRONIZE},
    {"get_future", work_get_future, METH_NOARGS,
     "get_future($self, /)\n--\n\n" DLPY_DOC_WORK_GET_FUTURE},
    {"get_future_result", work_get_future_result, METH_NOARGS,
     "get_future_result($self, /)\n--\n\n" DLPY_DOC_WORK_GET_FUTURE_RESULT},
    {"_get_duration", work_get_duration, METH_NOARGS,
     "_get_duration($self, /)\n--\n\n"},
    {"_get_op_type", work_op_type, METH_NOARGS, "_get_op_type($self, /)\n--\n\n"},
    {"_ended_at", work_ended_at, METH_NOARGS, "_ended_at($self, /)\n--\n\n"},
    {"_call_when_done", work_call_when_done, METH_O,
     "_call_when_done($self, callback, /)\n--\n\n"},
    {"_take_callbacks", work_take_callbacks, METH_NOARGS,
     "_take_callbacks($self, /)\n--\n\n"},
    {0},
};
