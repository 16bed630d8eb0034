/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/work_type.h"

#include <stdbool.h>
#include <structmember.h>

#include "pg/device.h"
#include "python/completions.h"
#include "python/convert.h"
#include "python/cuda_arg.h"
#include "python/errors.h"

typedef struct work_object {
    PyObject_HEAD dl_work *work; /* fixed */
    dlpy_state *state;           /* borrowed: the type holds the module */
    dlpy_completions *completions;
    PyObject *pins;
    PyObject *outputs;
    PyObject *callbacks; /* list, or NULL */
    PyObject *weak_references;
    dl_work_notice notice;
    dlpy_completion completion;
    dlpy_cuda_origin origin; /* of the array, if it is on a device */
} work_object;

static work_object *
work_of(PyObject *object)
{
    return (work_object *)object;
}

/* Any thread, with or without the GIL. */
static void
note_end(dl_work_notice *notice)
{
    work_object *self = DL_LIST_ENTRY(notice, work_object, notice);

    dlpy_completions_note(self->completions, &self->completion);
}

PyObject *
dlpy_work_new(dlpy_state *state, dl_work *work, dlpy_work_keep keep)
{
    if (work == NULL) {
        return dlpy_work_join_batch(state, keep.pins);
    }
    work_object *self = (work_object *)state->work_type->tp_alloc(state->work_type, 0);

    dlpy_completions_drain(state->completions);
    if (self == NULL) {
        /* The arrays may go away before the end: it has to come first. */
        Py_BEGIN_ALLOW_THREADS
        dl_work_wait(work, dl_deadline_after(-1));
        Py_END_ALLOW_THREADS
        dl_work_unref(work);
        return NULL;
    }
    self->work = work;
    self->state = state;
    self->completions = state->completions;
    self->pins = Py_XNewRef(keep.pins);
    self->outputs = Py_XNewRef(keep.outputs);
    if (dl_work_is_on_device(work)) {
        self->origin = dlpy_cuda_last_origin();
    }
    self->notice.call = note_end;
    self->completion.object = Py_NewRef((PyObject *)self);
    dl_work_notify(work, &self->notice);
    return (PyObject *)self;
}

static int
work_traverse(PyObject *object, visitproc visit, void *arg)
{
    work_object *self = work_of(object);

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->pins);
    Py_VISIT(self->outputs);
    Py_VISIT(self->callbacks);
    return 0;
}

static int
work_clear(PyObject *object)
{
    work_object *self = work_of(object);

    Py_CLEAR(self->pins);
    Py_CLEAR(self->outputs);
    Py_CLEAR(self->callbacks);
    return 0;
}

/* It has ended, or it would hold itself. */
static void
work_dealloc(PyObject *object)
{
    work_object *self = work_of(object);
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    work_clear(object);
    dl_work_unref(self->work);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
raise_result(work_object *self, dl_status status)
{
    return dlpy_raise_collective(self->state, status);
}

/* Looks, without waiting, whether it has ended by now. */
static bool
has_ended(work_object *self)
{
    dl_work *work = self->work;

    if (!dl_work_is_done(work) && work->ops->poll != NULL) {
        work->ops->poll(work);
    }
    return dl_work_is_done(work);
}

/* On a device the current stream waits, and not the caller. */
static PyObject *
order_stream(work_object *self)
{
    void *stream;

    if (dlpy_cuda_current_stream(&self->origin, &stream) < 0) {
        return NULL;
    }
    dl_status status = dl_work_order(self->work, stream);
    if (status != DL_OK) {
        return raise_result(self, status);
    }
    dlpy_completions_drain(self->completions);
    Py_RETURN_TRUE;
}

static PyObject *
work_wait(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    work_object *self = work_of(object);
    int64_t timeout = -1;
    dl_status status;

    if (count + (names == NULL ? 0 : PyTuple_GET_SIZE(names)) > 1) {
        PyErr_SetString(PyExc_TypeError, "wait() takes at most one argument, timeout");
        return NULL;
    }
    if (count == 1 || names != NULL) {
        if (dlpy_timeout_from(args[0], -1, &timeout) < 0) {
            return NULL;
        }
        /* torch's default, zero, is no limit besides the operation's own. */
        timeout = timeout == 0 ? -1 : timeout;
    }
    if (dl_work_is_on_device(self->work) && timeout < 0 && !dl_device_blocks()) {
        return order_stream(self);
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_work_wait(self->work, dl_deadline_after(timeout));
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        return raise_result(self, status);
    }
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
    work_object *self = work_of(object);

    return PyBool_FromLong(has_ended(self) && self->work->status == DL_OK);
}

static PyObject *
work_exception(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    work_object *self = work_of(object);
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
work_result(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    work_object *self = work_of(object);

    if (self->outputs == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "result() not implemented.");
        return NULL;
    }
    return Py_NewRef(self->outputs);
}

static PyObject *
work_source_rank(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dl_work *work = work_of(object)->work;

    if (!dl_work_is_done(work) || work->source < 0) {
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
    PyObject *waited = work_wait(object, NULL, 0, NULL);

    if (waited == NULL) {
        return NULL;
    }
    Py_DECREF(waited);
    Py_RETURN_NONE;
}

static PyObject *
work_op_type(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(work_of(object)->work->op);
}

/* On the clock of time.monotonic(). */
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
    work_object *self = work_of(object);

    if (self->state->future_of_work == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "distlite is not imported");
        return NULL;
    }
    return PyObject_CallOneArg(self->state->future_of_work, object);
}

static PyObject *
work_await(PyObject *object)
{
    PyObject *future = work_get_future(object, NULL);

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
    work_object *self = work_of(object);

    if (self->callbacks == NULL) {
        self->callbacks = PyList_New(0);
    }
    if (self->callbacks == NULL || PyList_Append(self->callbacks, callback) < 0) {
        return NULL;
    }
    dlpy_completions_want(self->completions, &self->completion);
    Py_RETURN_NONE;
}

static PyObject *
work_take_callbacks(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    work_object *self = work_of(object);
    PyObject *callbacks = self->callbacks;

    self->callbacks = NULL;
    return callbacks == NULL ? PyList_New(0) : callbacks;
}

static PyObject *
work_repr(PyObject *object)
{
    dl_work *work = work_of(object)->work;
    const char *state = "pending";

    if (dl_work_is_done(work)) {
        state = work->status == DL_OK ? "done" : "failed";
    }
    return PyUnicode_FromFormat("<distlite.Work: %s, %s>",
                                dl_op_type_name((uint8_t)work->op), state);
}

static PyMethodDef work_methods[] = {
    {"wait", (PyCFunction)(void (*)(void))work_wait, METH_FASTCALL | METH_KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n"
     "Returns True once the operation has ended well, and raises what it failed "
     "with, as often as it is called.  `timeout` (a timedelta, or seconds) may "
     "shorten the operation's own; None or 0 leaves that as it is.  On a device, and "
     "without `timeout`, it is the current stream that waits, and not the caller."},
    {"is_completed", work_is_completed, METH_NOARGS,
     "is_completed($self, /)\n--\n\nWhether it has ended, well or not."},
    {"is_success", work_is_success, METH_NOARGS,
     "is_success($self, /)\n--\n\nWhether it has ended well."},
    {"exception", work_exception, METH_NOARGS,
     "exception($self, /)\n--\n\nWhat it failed with, or None."},
    {"result", work_result, METH_NOARGS,
     "result($self, /)\n--\n\nThe list of output arrays."},
    {"source_rank", work_source_rank, METH_NOARGS,
     "source_rank($self, /)\n--\n\nRank in the group that a received message is from."},
    {"_source_rank", work_source_rank, METH_NOARGS, "_source_rank($self, /)\n--\n\n"},
    {"synchronize", work_synchronize, METH_NOARGS,
     "synchronize($self, /)\n--\n\nAs wait(): on a device, the current stream waits."},
    {"get_future", work_get_future, METH_NOARGS,
     "get_future($self, /)\n--\n\nA Future of the list of output arrays."},
    {"_get_op_type", work_op_type, METH_NOARGS, "_get_op_type($self, /)\n--\n\n"},
    {"_ended_at", work_ended_at, METH_NOARGS, "_ended_at($self, /)\n--\n\n"},
    {"_call_when_done", work_call_when_done, METH_O,
     "_call_when_done($self, callback, /)\n--\n\n"},
    {"_take_callbacks", work_take_callbacks, METH_NOARGS,
     "_take_callbacks($self, /)\n--\n\n"},
    {0},
};

static PyMemberDef work_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(work_object, weak_references), READONLY,
     NULL},
    {0},
};

static PyType_Slot work_slots[] = {
    {Py_tp_doc, "An operation that goes on while its caller does; see wait()."},
    {Py_tp_traverse, work_traverse},
    {Py_tp_clear, work_clear},
    {Py_tp_dealloc, work_dealloc},
    {Py_tp_repr, work_repr},
    {Py_tp_methods, work_methods},
    {Py_tp_members, work_members},
    {Py_am_await, work_await},
    {0, NULL},
};

static PyType_Spec work_spec = {
    .name = "distlite.Work",
    .basicsize = sizeof(work_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = work_slots,
};

int
dlpy_add_work_type(PyObject *module)
{
    dlpy_state *state = dlpy_state_of_module(module);

    state->completions = PyMem_RawCalloc(1, sizeof *state->completions);
    if (state->completions == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    dlpy_completions_init(state->completions);
    if (dlpy_add_work_functions(module) < 0) {
        return -1;
    }
    return dlpy_add_type(module, &work_spec, NULL, &state->work_type);
}
