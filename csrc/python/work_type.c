/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/work_type.h"

#include <structmember.h>

#include "python/arguments.h"
#include "python/docstrings.h"
#include "python/group_type.h"
#include "python/work_object.h"

/* Called on any thread, with or without the GIL. */
static void
note_end(dl_work_notice *notice)
{
    dlpy_work *self = DL_LIST_ENTRY(notice, dlpy_work, notice);

    dlpy_completions_note(self->completions, &self->completion);
}

void
dlpy_work_watch(dlpy_work *self)
{
    if (self->is_watched) {
        return;
    }
    self->is_watched = true;
    self->notice.call = note_end;
    self->completion.object = Py_NewRef((PyObject *)self);
    dl_work_notify(self->work, &self->notice);
}

PyObject *
dlpy_work_prepare(dlpy_state *state, dlpy_work_keep keep)
{
    dlpy_work *self = (dlpy_work *)state->work_type->tp_alloc(state->work_type, 0);

    dlpy_completions_drain(state->completions);
    if (self == NULL) {
        return NULL;
    }
    self->state = state;
    self->completions = state->completions;
    self->pins = Py_XNewRef(keep.pins);
    self->outputs = Py_XNewRef(keep.outputs);
    if (keep.guard != NULL) {
        self->guard = *keep.guard;
        *keep.guard = (dlpy_guard){0};
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
    work_of(prepared)->group_name = Py_XNewRef(name);
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
dlpy_work_join_batch(PyObject *prepared, PyObject *group)
{
    PyObject *batch = dlpy_group_batch(group);
    int status = batch == NULL ? 0 : PyList_Append(batch, prepared);

    Py_DECREF(prepared);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *
dlpy_work_new(dlpy_state *state, dl_work *work, dlpy_work_keep keep)
{
    PyObject *prepared = dlpy_work_prepare(state, keep);

    if (prepared == NULL) {
        /* The arrays may be freed before the operation ends, so wait for it. */
        Py_BEGIN_ALLOW_THREADS
        dl_work_wait(work, dl_deadline_after(-1));
        Py_END_ALLOW_THREADS
        dl_work_unref(work);
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
work_init(PyObject *object, PyObject *args, PyObject *names)
{
    static const dlpy_signature signature = {"Work", 0, {NULL}};

    (void)object;
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
        for (int i = 0; i < dlpy_guard_size(&self->guard); i++) {
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
        dlpy_work_watch(work_of(object));
    }
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
        dl_work_unref(self->work);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

/* Returns what is known without querying a device or waiting. */
static const char *
state_of(const dl_work *work, uint64_t sequence)
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
    const char *state = state_of(work, sequence);
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

static PyMemberDef work_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(dlpy_work, weak_references), READONLY,
     NULL},
    {0},
};

static PyType_Slot work_slots[] = {
    {Py_tp_doc, DLPY_DOC_WORK},
    {Py_tp_new, work_construct},
    {Py_tp_init, work_init},
    {Py_tp_traverse, work_traverse},
    {Py_tp_clear, work_clear},
    {Py_tp_finalize, work_finalize},
    {Py_tp_dealloc, work_dealloc},
    {Py_tp_repr, work_repr},
    {Py_tp_methods, dlpy_work_methods},
    {Py_tp_members, work_members},
    {Py_am_await, dlpy_work_await},
    {0, NULL},
};

static PyType_Spec work_spec = {
    .name = "distlite.Work",
    .basicsize = sizeof(dlpy_work),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_IMMUTABLETYPE,
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
