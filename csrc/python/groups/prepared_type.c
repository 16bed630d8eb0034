/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/prepared_type.h"

#include <stdlib.h>

#include "pg/record/recorder.h"
#include "python/groups/group_type.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/events.h"

typedef struct prepared_object {
    PyObject_HEAD dlpy_state *state; /* borrowed: the type holds the module */
    PyObject *group;
    PyObject *pins;
    PyObject *outputs;
    PyObject *inputs;
    dl_call *call; /* of malloc() */
    int64_t timeout;
    /* Of the line that prepared the call: finding that of each start would take a
     * quarter of a small operation. */
    uint32_t site;
    dlpy_guard guard;
} prepared_object;

/* Fails for a call that cannot be started repeatedly. */
static dl_status
check(dl_group *core, const dl_call *call)
{
    if (dl_op_type_is_message((uint8_t)call->op)) {
        if (call->tensor.device == DL_CPU) {
            return dl_group_check_message(core, call);
        }
    } else {
        DL_TRY(dl_group_check_collective(core, call));
        if (!dl_call_is_on_device(call)) {
            return DL_OK;
        }
    }
    return dl_fail(DL_UNSUPPORTED,
                   "persistent operations are for arrays in the CPU's memory");
}

PyObject *
dlpy_prepared_new(dlpy_state *state, PyObject *group, const dl_call *call,
                  const dlpy_work_keep *keep, PyObject *inputs, int64_t timeout)
{
    dl_group *core = dlpy_group_core(group);
    PyTypeObject *type = state->prepared_type;
    dl_call *copy = NULL;
    dl_status status = check(core, call);

    if (status == DL_OK) {
        status = dl_call_copy(call, dl_group_size(core), (dl_room){0}, &copy);
    }
    if (status != DL_OK) {
        return dlpy_raise_collective(state, status);
    }
    prepared_object *self = (prepared_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        free(copy);
        return NULL;
    }
    self->state = state;
    self->group = Py_NewRef(group);
    self->pins = Py_XNewRef(keep->pins);
    self->outputs = Py_XNewRef(keep->outputs);
    self->inputs = Py_XNewRef(inputs);
    self->call = copy;
    self->timeout = timeout;
    self->site = dl_recorder_site;
    if (keep->guard != NULL) {
        self->guard = *keep->guard;
        *keep->guard = (dlpy_guard){0};
    }
    copy->guard = dlpy_guard_core(&self->guard);
    return (PyObject *)self;
}

static dl_status
begin(const prepared_object *self, dl_deadline deadline, dl_work **work)
{
    dl_group *core = dlpy_group_core(self->group);
    bool is_message = dl_op_type_is_message((uint8_t)self->call->op);
    dlpy_gil gil;

    DL_TRY(dl_guard_check(self->call->guard));
    dlpy_gil_leave(&gil, is_message && dl_group_are_brief(core, self->call, 1));
    dl_status status = is_message ? dl_group_post(core, self->call, deadline, work)
                                  : dl_group_submit(core, self->call, deadline, work);
    return dlpy_gil_return(&gil, status);
}

/* The Work keeps this object, and with it the arrays and the guard. */
static PyObject *
start_quietly(PyObject *object)
{
    prepared_object *self = (prepared_object *)object;
    PyObject *work = dlpy_work_prepare(
        self->state, &(dlpy_work_keep){.pins = object, .outputs = self->outputs});
    dl_work *core = NULL;

    if (work == NULL) {
        return NULL;
    }
    dlpy_work_name_group(work, self->group);
    dl_recorder_site = self->site;
    dl_deadline deadline = dl_deadline_after(self->timeout);
    dl_status status = begin(self, deadline, &core);
    if (status != DL_OK) {
        Py_DECREF(work);
        return dlpy_raise_collective(self->state, status);
    }
    return dlpy_work_begin(work, core);
}

static PyObject *
start(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const prepared_object *self = (const prepared_object *)object;

    if (self->inputs == NULL || !dlpy_events_are_on()) {
        return start_quietly(object);
    }
    PyObject *event = dlpy_event_begin(
        self->group, dl_op_type_name((uint8_t)self->call->op), self->inputs);
    return dlpy_event_end(self->state, event, start_quietly(object));
}

static int
prepared_traverse(PyObject *object, visitproc visit, void *arg)
{
    prepared_object *self = (prepared_object *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->group);
    Py_VISIT(self->pins);
    Py_VISIT(self->outputs);
    Py_VISIT(self->inputs);
    for (int i = 0; i < self->guard.count; i++) {
        Py_VISIT(dlpy_guard_at(&self->guard, i));
    }
    return 0;
}

static void
prepared_dealloc(PyObject *object)
{
    prepared_object *self = (prepared_object *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    dlpy_guard_clear(&self->guard);
    free(self->call);
    Py_CLEAR(self->group);
    Py_CLEAR(self->pins);
    Py_CLEAR(self->outputs);
    Py_CLEAR(self->inputs);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef prepared_methods[] = {
    {"start", start, METH_NOARGS, DLPY_DOC__PREPARED_START},
    {0},
};

static PyType_Slot prepared_slots[] = {
    {Py_tp_doc, "A call that is ready to be started."},
    {Py_tp_traverse, prepared_traverse},
    {Py_tp_dealloc, prepared_dealloc},
    {Py_tp_methods, prepared_methods},
    {0, NULL},
};

static PyType_Spec prepared_spec = {
    .name = "distlite._Prepared",
    .basicsize = sizeof(prepared_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = prepared_slots,
};

int
dlpy_add_prepared(PyObject *module)
{
    dlpy_state *state = dlpy_state_of_module(module);

    return dlpy_add_type(module, &prepared_spec, NULL, &state->prepared_type);
}
