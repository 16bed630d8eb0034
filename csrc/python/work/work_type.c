/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/work/work_type.h"

#include <structmember.h>

#include "pg/device/device.h"
#include "python/arrays/cuda_arg.h"
#include "python/groups/group_type.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"
#include "python/work/completions.h"

/* There are two kinds of instances.  Those that the core creates have a dl_work.  Those
 * that Python constructs, mostly of subclasses, have none: a backend written in Python
 * overrides the methods that it can implement; the others report that the operation has
 * not ended, or raise an error. */
typedef struct dlpy_work {
    PyObject_HEAD dl_work *work; /* fixed; NULL if Python constructed the Work */
    dlpy_state *state;           /* borrowed: the type holds the module */
    dlpy_completions *completions;
    PyObject *group_name; /* str, for the repr; NULL if not known */
    PyObject *pins;
    dlpy_guard guard;
    dlpy_cuda_origin origin; /* of the array, if on a device */
    /* guarded by the Work's critical section */
    PyObject *outputs;
    PyObject *callbacks; /* list, or NULL */
    PyObject *event;     /* (record/events.h) until the end; or NULL */
    bool is_watched;     /* notice and completion are in use */
    PyObject *weak_references;
    dl_work_notice notice;
    dlpy_completion completion;
    dl_work ended; /* what `work` points to if the operation ended as it began */
} dlpy_work;

static dlpy_work *
work_of(PyObject *object)
{
    return (dlpy_work *)object;
}

/* Called on any thread, with or without the GIL. */
static void
note_end(dl_work_notice *notice)
{
    dlpy_work *self = DL_LIST_ENTRY(notice, dlpy_work, notice);

    dlpy_completions_note(self->completions, &self->completion);
}

/* Makes the Work hold a reference to itself until it has ended, and be noted in
 * `completions` then: because it has callbacks, or because it is not referenced
 * otherwise.  A Work that is waited for and dropped needs neither. */
static void
keep_until_end(dlpy_work *self)
{
    bool is_first;

    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    is_first = !self->is_watched;
    self->is_watched = true;
    if (is_first) {
        self->notice.call = note_end;
        self->completion.object = Py_NewRef((PyObject *)self);
        dl_work_notify(self->work, &self->notice);
    }
    Py_END_CRITICAL_SECTION();
}

PyObject *
dlpy_work_prepare(dlpy_state *state, const dlpy_work_keep *keep)
{
    dlpy_work *self = (dlpy_work *)state->work_type->tp_alloc(state->work_type, 0);

    dlpy_completions_drain(state->completions);
    if (self == NULL) {
        return NULL;
    }
    self->state = state;
    self->completions = state->completions;
    self->pins = Py_XNewRef(keep->pins);
    self->outputs = Py_XNewRef(keep->outputs);
    if (keep->guard != NULL) {
        self->guard = *keep->guard;
        *keep->guard = (dlpy_guard){0};
    }
    return (PyObject *)self;
}

void
dlpy_work_name_group(PyObject *prepared, PyObject *group)
{
    PyObject *name = dlpy_group_name(group);

    if (name == NULL) {
        PyErr_Clear(); /* out of memory: the repr omits the name */
    }
    work_of(prepared)->group_name = name;
}

const dl_guard *
dlpy_work_guard(PyObject *prepared)
{
    return dlpy_guard_core(&work_of(prepared)->guard);
}

bool
dlpy_work_take_event(PyObject *object, PyObject *event)
{
    dlpy_work *self = work_of(object);

    if (self->work == NULL) {
        return false;
    }
    Py_XSETREF(self->event, Py_NewRef(event));
    return true;
}

PyObject *
dlpy_work_begin(PyObject *prepared, dl_work *work)
{
    dlpy_work *self = work_of(prepared);

    self->work = work;
    if (dl_work_is_on_device(work)) {
        self->origin = dlpy_cuda_last_origin();
    }
    return prepared;
}

PyObject *
dlpy_work_end(PyObject *prepared, const dl_call *message, dl_deadline deadline)
{
    dlpy_work *self = work_of(prepared);

    dl_work_init_ended(&self->ended, message->op,
                       message->op == DL_SEND ? -1 : message->peer,
                       dl_group_ended_at(message, deadline));
    self->work = &self->ended;
    return prepared;
}

PyObject *
dlpy_work_join_batch(PyObject *prepared, PyObject *group)
{
    PyObject *batch = dlpy_group_batch(group);
    int status = batch == NULL ? 0 : PyList_Append(batch, prepared);

    Py_DECREF(prepared);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *
dlpy_work_new(dlpy_state *state, dl_work *work, const dlpy_work_keep *keep)
{
    PyObject *prepared = dlpy_work_prepare(state, keep);

    if (prepared == NULL) {
        /* The arrays may be freed before the operation ends, so wait for it. */
        Py_BEGIN_ALLOW_THREADS
        dl_work_wait(work, dl_deadline_after(-1));
        dl_work_unref(work);
        Py_END_ALLOW_THREADS
    }
    return prepared == NULL ? NULL : dlpy_work_begin(prepared, work);
}

/* Creates a Work without an operation; the arguments are for the class's __init__. */
static PyObject *
work_construct(PyTypeObject *type, PyObject *Py_UNUSED(args),
               PyObject *Py_UNUSED(names))
{
    dlpy_state *state = dlpy_state_of_type(type);
    PyObject *object = state == NULL ? NULL : type->tp_alloc(type, 0);

    if (object != NULL) {
        work_of(object)->state = state;
        work_of(object)->completions = state->completions;
    }
    return object;
}

static int
work_init(PyObject *Py_UNUSED(object), PyObject *args, PyObject *names)
{
    static const dlpy_signature signature = {"Work", 0, {NULL}};

    return dlpy_take_init_arguments(&signature, args, names, NULL);
}

static bool
is_going_on(const dlpy_work *self)
{
    return self->work != NULL && !dl_work_is_done(self->work);
}

/* Returns whether the arrays must stay alive for good, as something else still uses
 * them. */
static bool
keeps_memory(const dlpy_work *self)
{
    return self->work != NULL && dl_work_is_done(self->work)
           && self->work->keeps_memory;
}

/* A running operation uses the arrays as well, which the collector cannot know. */
static int
work_traverse(PyObject *object, visitproc visit, void *arg)
{
    dlpy_work *self = work_of(object);

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->callbacks);
    Py_VISIT(self->event);
    if (!is_going_on(self) && !keeps_memory(self)) {
        Py_VISIT(self->pins);
        Py_VISIT(self->outputs);
        for (int i = 0; i < self->guard.count; i++) {
            Py_VISIT(dlpy_guard_at(&self->guard, i));
        }
    }
    return 0;
}

static int
work_clear(PyObject *object)
{
    dlpy_work *self = work_of(object);

    if (!keeps_memory(self)) {
        Py_CLEAR(self->pins);
        Py_CLEAR(self->outputs);
        dlpy_guard_clear(&self->guard);
    }
    Py_CLEAR(self->callbacks);
    Py_CLEAR(self->event);
    return 0;
}

/* The Work is not referenced any more, but its arrays must live until the operation
 * ends. */
static void
work_finalize(PyObject *object)
{
    if (is_going_on(work_of(object))) {
        keep_until_end(work_of(object));
    }
}

/* The work may have the last reference to its group or window, whose end waits for
 * threads; the GIL is released only then. */
static void
drop_core(dl_work *work)
{
    dlpy_gil gil;

    dlpy_signals_hold();
    dlpy_gil_leave(&gil, true);
    dl_work_unref(work);
    (void)dlpy_gil_return(&gil, DL_OK);
    dlpy_signals_release();
}

static void
work_dealloc(PyObject *object)
{
    dlpy_work *self = work_of(object);
    PyTypeObject *type = Py_TYPE(object);

    if (is_going_on(self) && PyObject_CallFinalizerFromDealloc(object) < 0) {
        return;
    }
    PyObject_GC_UnTrack(object);
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    work_clear(object);
    Py_CLEAR(self->group_name);
    if (self->work != NULL) {
        drop_core(self->work);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

/* Returns what is known without querying a device or waiting. */
static const char *
work_state_text(const dl_work *work, uint64_t sequence)
{
    if (dl_work_is_done(work)) {
        return work->status == DL_OK ? "completed" : "failed";
    }
    return work->is_queued && sequence == 0 ? "queued" : "running";
}

static PyObject *
work_repr(PyObject *object)
{
    const dlpy_work *self = work_of(object);
    const dl_work *work = self->work;
    char number[24] = "";
    char source[24] = "";

    if (work == NULL) {
        return PyUnicode_FromFormat("<%s object at %p>", Py_TYPE(object)->tp_name,
                                    object);
    }
    uint64_t sequence = atomic_load_explicit(&work->sequence, memory_order_relaxed);
    const char *state = work_state_text(work, sequence);
    if (sequence > 0) {
        PyOS_snprintf(number, sizeof number, " #%llu", (unsigned long long)sequence);
    }
    if (dl_work_is_done(work) && work->source >= 0) {
        PyOS_snprintf(source, sizeof source, " from rank %d", work->source);
    }
    const char *name = dl_op_type_name((uint8_t)work->op);
    if (self->group_name == NULL) {
        return PyUnicode_FromFormat("<distlite.Work: %s%s%s, %s>", name, number, source,
                                    state);
    }
    return PyUnicode_FromFormat("<distlite.Work: %s%s%s in group %R, %s>", name, number,
                                source, self->group_name, state);
}

/* Raises for a method that the class of a Work constructed in Python does not
 * define. */
static PyObject *
refuse_own(PyObject *object, const char *method)
{
    PyErr_Format(
        PyExc_NotImplementedError,
        "%s does not define %s(): a Work constructed in Python has no default for it",
        Py_TYPE(object)->tp_name, method);
    return NULL;
}

static PyObject *
raise_result(dlpy_work *self, dl_status status)
{
    return dlpy_raise_collective(self->state, status);
}

/* Ends the event with the operation, so that hooks that are removed next have seen its
 * end. */
static void
end_event(dlpy_work *self)
{
    PyObject *event;

    if (DLPY_LOAD(self->event) == NULL || !dl_work_is_done(self->work)) {
        return;
    }
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    event = self->event;
    DLPY_STORE(self->event, NULL);
    Py_END_CRITICAL_SECTION();
    if (event == NULL) {
        return; /* another thread ends it */
    }
    PyObject *error = dlpy_error_take();
    PyObject *done = PyObject_CallMethod(event, "end", NULL);
    if (done == NULL) {
        PyErr_WriteUnraisable(event);
    }
    Py_XDECREF(done);
    Py_DECREF(event);
    dlpy_error_restore(error);
}

/* Returns whether the operation has ended, without waiting. */
static bool
work_has_ended(dlpy_work *self)
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
static void
withdraw_if_moved(dlpy_work *self)
{
    dl_work *work = self->work;

    if (work->ops->withdraw == NULL || dl_work_is_done(work)
        || dl_guard_check(dlpy_guard_core(&self->guard)) == DL_OK) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    work->ops->withdraw(work);
    Py_END_ALLOW_THREADS
}

void
dlpy_work_withdraw(PyObject *object)
{
    dlpy_work *self = work_of(object);

    if (self->work != NULL && self->work->ops->withdraw != NULL) {
        dl_fail(DL_CANCELLED, "another message of its batch could not begin");
        Py_BEGIN_ALLOW_THREADS
        self->work->ops->withdraw(self->work);
        Py_END_ALLOW_THREADS
    }
}

static PyObject *
work_withdraw(PyObject *object, PyObject *Py_UNUSED(unused))
{
    dlpy_work_withdraw(object);
    Py_RETURN_NONE;
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
    withdraw_if_moved(self);
    if (dl_work_is_on_device(self->work)) {
        /* Done even if the caller then waits: in a capture only the stream order
         * counts. */
        PyObject *ordered = order_stream(self);
        if (ordered == NULL || (timeout < 0 && !dl_device_blocks())) {
            return ordered;
        }
        Py_DECREF(ordered);
    }
    if (dl_work_is_done(self->work)) {
        status = dl_work_result(self->work);
    } else {
        if (self->work->op == DL_WINDOW) {
            /* All others have records, with the line that began them. */
            dlpy_recorded_site_enter(self->state);
        }
        dlpy_gil_leave(&gil, self->work->is_brief);
        status = dl_work_wait(self->work, dl_deadline_after(timeout));
        status = dlpy_gil_return(&gil, status);
    }
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
    return PyBool_FromLong(work_has_ended(work_of(object)));
}

static PyObject *
work_is_success(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);

    return PyBool_FromLong(work_has_ended(self) && self->work->status == DL_OK);
}

static PyObject *
work_exception(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);

    if (!work_has_ended(self) || self->work->status == DL_OK) {
        Py_RETURN_NONE;
    }
    raise_result(self, dl_work_result(self->work));
    return dlpy_error_take();
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

/* Returns the list that is created on first use and is the same every time; NULL,
 * without an exception if there are no outputs. */
static PyObject *
outputs_of(dlpy_work *self)
{
    PyObject *former = NULL;
    PyObject *outputs;

    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    outputs = self->outputs;
    if (outputs != NULL && !PyList_Check(outputs)) {
        outputs = list_of(outputs);
        if (outputs != NULL) {
            former = self->outputs;
            self->outputs = outputs;
        }
    }
    Py_XINCREF(outputs);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(former);
    return outputs;
}

static PyObject *
work_result(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);

    if (self->work == NULL) {
        return refuse_own(object, "result");
    }
    if (!work_has_ended(self)) {
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
    PyObject *outputs = outputs_of(self);
    if (outputs == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "result() not implemented.");
    }
    return outputs;
}

static PyObject *
work_source_rank(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);
    dl_work *work = self->work;
    bool is_receive = work != NULL && (work->op == DL_RECV || work->op == DL_RECV_ANY);

    if (is_receive && !work_has_ended(self)) {
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

static PyObject *
work_get_future(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);

    if (self->work == NULL) {
        return refuse_own(object, "get_future");
    }
    PyObject *make = DLPY_LOAD(self->state->future_of_work);
    if (make == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "distlite is not imported");
        return NULL;
    }
    return PyObject_CallOneArg(make, object);
}

static PyObject *
work_await(PyObject *object)
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
    int added = -1;
    Py_BEGIN_CRITICAL_SECTION(object);
    if (self->callbacks == NULL) {
        self->callbacks = PyList_New(0);
    }
    if (self->callbacks != NULL) {
        added = PyList_Append(self->callbacks, callback);
    }
    Py_END_CRITICAL_SECTION();
    if (added < 0) {
        return NULL;
    }
    keep_until_end(self);
    dlpy_completions_want(self->completions, &self->completion);
    dl_work_expedite(self->work);
    Py_RETURN_NONE;
}

static PyObject *
work_take_callbacks(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    dlpy_work *self = work_of(object);
    PyObject *callbacks;

    Py_BEGIN_CRITICAL_SECTION(object);
    callbacks = self->callbacks;
    self->callbacks = NULL;
    Py_END_CRITICAL_SECTION();
    return callbacks == NULL ? PyList_New(0) : callbacks;
}

static PyMethodDef work_methods[] = {
    DLPY_FUNCTION("wait", work_wait, DLPY_DOC_WORK_WAIT),
    {"is_completed", work_is_completed, METH_NOARGS, DLPY_DOC_WORK_IS_COMPLETED},
    {"is_success", work_is_success, METH_NOARGS, DLPY_DOC_WORK_IS_SUCCESS},
    {"exception", work_exception, METH_NOARGS, DLPY_DOC_WORK_EXCEPTION},
    {"result", work_result, METH_NOARGS, DLPY_DOC_WORK_RESULT},
    {"source_rank", work_source_rank, METH_NOARGS, DLPY_DOC_WORK_SOURCE_RANK},
    {"_source_rank", work_source_rank, METH_NOARGS, DLPY_DOC_WORK__SOURCE_RANK},
    {"synchronize", work_synchronize, METH_NOARGS, DLPY_DOC_WORK_SYNCHRONIZE},
    {"get_future", work_get_future, METH_NOARGS, DLPY_DOC_WORK_GET_FUTURE},
    {"_get_op_type", work_op_type, METH_NOARGS, DLPY_DOC_WORK__GET_OP_TYPE},
    {"_call_when_done", work_call_when_done, METH_O, DLPY_DOC_WORK__CALL_WHEN_DONE},
    {"_withdraw", work_withdraw, METH_NOARGS, DLPY_DOC_WORK__WITHDRAW},
    {"_take_callbacks", work_take_callbacks, METH_NOARGS,
     DLPY_DOC_WORK__TAKE_CALLBACKS},
    {0},
};

static PyMemberDef work_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(dlpy_work, weak_references), READONLY,
     NULL},
    {0},
};

static PyType_Slot work_slots[] = {
    {Py_tp_doc, DLPY_DOC_WORK},    {Py_tp_new, work_construct},
    {Py_tp_init, work_init},       {Py_tp_traverse, work_traverse},
    {Py_tp_clear, work_clear},     {Py_tp_finalize, work_finalize},
    {Py_tp_dealloc, work_dealloc}, {Py_tp_repr, work_repr},
    {Py_tp_methods, work_methods}, {Py_tp_members, work_members},
    {Py_am_await, work_await},     {0, NULL},
};

static PyType_Spec work_spec = {
    .name = "distlite.Work",
    .basicsize = sizeof(dlpy_work),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = work_slots,
};

const dlpy_part dlpy_work_type = {
    .type = &work_spec,
    .slot = offsetof(dlpy_state, work_type),
};
