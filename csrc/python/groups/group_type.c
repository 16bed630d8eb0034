/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/group_type.h"

#include <structmember.h>

#include "pg/device/device.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"
#include "python/record/events.h"

/* A core group or the global ranks of a custom group that have been replaced: calls of
 * other threads may still be using them. */
typedef struct dlpy_former {
    struct dlpy_former *next;
    dl_group *group;
    int64_t *global_ranks;
} dlpy_former;

/* Keeps a replaced core group or its global ranks.  Called in the critical section, or
 * before another thread knows the group. */
static int
keep_former(dlpy_group *self, dl_group *group, int64_t *global_ranks)
{
    dlpy_former *former = PyMem_Calloc(1, sizeof *former);

    if (former == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *former = (dlpy_former){self->formers, group, global_ranks};
    self->formers = former;
    return 0;
}

/* Dropping the last reference may wait for the lane's thread or a file's lock. */
static void
drop_core(dl_group *group)
{
    if (group != NULL) {
        DLPY_END(dl_group_unref(group));
    }
}

/* Replaces one of the objects that the critical section guards; returns the former
 * one. */
static PyObject *
swap_field(dlpy_group *self, PyObject **field, PyObject *object)
{
    PyObject *former;

    (void)self; /* where there is a GIL */
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    former = *field;
    DLPY_STORE(*field, object);
    Py_END_CRITICAL_SECTION();
    return former;
}

/* Returns a new reference, or NULL. */
static PyObject *
read_field(dlpy_group *self, PyObject *const *field)
{
    PyObject *object;

    (void)self; /* where there is a GIL */
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    object = Py_XNewRef(*field);
    Py_END_CRITICAL_SECTION();
    return object;
}

PyObject *
dlpy_group_object_calls(PyObject *group)
{
    dlpy_group *self = (dlpy_group *)group;

    return read_field(self, &self->object_calls);
}

void
dlpy_group_keep_object_calls(PyObject *group, PyObject *calls)
{
    dlpy_group *self = (dlpy_group *)group;

    Py_XDECREF(swap_field(self, &self->object_calls, calls));
}

/* Takes the reference to `made`, also on failure.  The cached name is dropped. */
static int
replace_core(dlpy_group *self, dl_group *made)
{
    PyObject *name = NULL;
    int result;

    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    result = self->group == NULL ? 0 : keep_former(self, self->group, NULL);
    if (result == 0) {
        name = self->name;
        self->name = NULL;
        DLPY_STORE(self->group, made);
    }
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(name);
    dlpy_group_keep_object_calls((PyObject *)self, NULL);
    if (result < 0) {
        drop_core(made);
    }
    return result;
}

/* Custom groups, whose operations are written in Python: their core group only knows
 * rank, size and names, which tp_init sets. */
static int
make_core(const dlpy_state *state, dlpy_group *self, int rank, int size)
{
    dl_group_options options = {
        .name = "0",
        .backend = "custom",
        .rank = rank,
        .size = size,
        .timeout = DLPY_GROUP_TIMEOUT,
    };
    dl_group *made;
    dl_status status = dl_group_new(&options, NULL, &made);

    if (status != DL_OK) {
        dlpy_raise_store(state, status);
        return -1;
    }
    return replace_core(self, made);
}

/* Starts with a core group of one rank, which tp_init replaces, so that no method has
 * to check whether there is a core group. */
static int
begin_custom(const dlpy_state *state, dlpy_group *self)
{
    self->is_custom = true;
    self->store = Py_NewRef(Py_None);
    self->handler = Py_XNewRef(DLPY_LOAD(state->custom_handler));
    self->description = PyUnicode_FromString("undefined");
    return self->description == NULL ? -1 : make_core(state, self, 0, 1);
}

/* torch has two constructors of a group without a backend.  They are told apart by the
 * number of arguments, or by the argument name "store". */
static bool
names_store(PyObject *args, PyObject *keywords)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);

    if (keywords != NULL) {
        count += PyDict_GET_SIZE(keywords);
    }
    return count >= 3 || (keywords != NULL && dlpy_dict_has(keywords, "store"));
}

static int
group_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature with_store = {
        "ProcessGroup", 3, {"store", "rank", "size"}};
    static const dlpy_signature without = {"ProcessGroup", 2, {"rank", "size"}};
    dlpy_group *self = (dlpy_group *)object;
    PyObject *values[3] = {NULL};
    int rank;
    int size;

    if (!self->is_custom) {
        return 0;
    }
    bool has_store = names_store(args, keywords);
    PyObject **numbers = has_store ? values + 1 : values;
    const dlpy_state *state = dlpy_state_of_type(Py_TYPE(object));
    if (state == NULL
        || dlpy_take_init_arguments(has_store ? &with_store : &without, args, keywords,
                                    values)
               < 0
        || dlpy_rank_from(numbers[0], "rank", &rank) < 0
        || dlpy_rank_from(numbers[1], "size", &size) < 0
        || make_core(state, self, rank, size) < 0) {
        return -1;
    }
    if (has_store) {
        Py_XDECREF(swap_field(self, &self->store, Py_NewRef(values[0])));
    }
    return 0;
}

/* Returns whether an object of `type` created with these arguments is a custom group.
 * Such a group has no core backend: it comes from torch's other constructor, which
 * takes rank and size, or from a subclass with its own __init__.  Naming the backend
 * selects the core's groups. */
static bool
is_custom_call(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    if (keywords != NULL && dlpy_dict_has(keywords, "backend")) {
        return false;
    }
    return type->tp_init != group_init
           || (PyTuple_GET_SIZE(args) == 2 && PyLong_Check(PyTuple_GET_ITEM(args, 0)));
}

/* The group is complete when tp_new returns: no object exists that has not met its
 * peers, so no method needs to check. */
static PyObject *
group_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    dlpy_state *state = dlpy_state_of_type(type);
    PyObject *self = state == NULL ? NULL : type->tp_alloc(type, 0);

    if (self == NULL) {
        return NULL;
    }
    int made = is_custom_call(type, args, keywords)
                   ? begin_custom(state, (dlpy_group *)self)
                   : dlpy_group_join(state, args, keywords, (dlpy_group *)self);
    if (made < 0) {
        Py_CLEAR(self);
    }
    return self;
}

/* The store may be written in Python and refer to the group.  The core's own reference
 * to the store is not visible here; it is dropped with the group. */
static int
group_traverse(PyObject *object, visitproc visit, void *arg)
{
    dlpy_group *self = (dlpy_group *)object;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->store);
    Py_VISIT(self->handler);
    Py_VISIT(self->object_calls);
    Py_VISIT(self->batch);
    return 0;
}

static int
group_clear(PyObject *object)
{
    Py_CLEAR(((dlpy_group *)object)->store);
    Py_CLEAR(((dlpy_group *)object)->handler);
    Py_CLEAR(((dlpy_group *)object)->object_calls);
    Py_CLEAR(((dlpy_group *)object)->batch);
    return 0;
}

/* Leaves the group as shutdown() does: a group that is dropped by accident must not
 * keep its peers waiting. */
static void
group_dealloc(PyObject *object)
{
    dlpy_group *self = (dlpy_group *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    group_clear(object);
    Py_CLEAR(self->description);
    Py_CLEAR(self->name);
    PyMem_Free(self->global_ranks);
    drop_core(self->group);
    while (self->formers != NULL) {
        dlpy_former *former = self->formers;
        self->formers = former->next;
        drop_core(former->group);
        PyMem_Free(former->global_ranks);
        PyMem_Free(former);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

void
dlpy_group_open_batch(PyObject *group, PyObject *batch)
{
    DLPY_STORE(((dlpy_group *)group)->batch, batch);
}

PyObject *
dlpy_group_close_batch(PyObject *group)
{
    PyObject *batch = dlpy_group_batch(group);

    if (batch != NULL) {
        DLPY_STORE(((dlpy_group *)group)->batch, NULL);
    }
    return batch;
}

static PyObject *
group_get_description(PyObject *object, void *Py_UNUSED(closure))
{
    dlpy_group *self = (dlpy_group *)object;

    return read_field(self, &self->description);
}

static PyObject *
group_repr(PyObject *self)
{
    dl_group *group = dlpy_group_core(self);
    PyObject *description = group_get_description(self, NULL);
    PyObject *name = dlpy_group_name(self);
    PyObject *text =
        name == NULL
            ? NULL
            : PyUnicode_FromFormat("<distlite.ProcessGroup '%U' (%U): rank %d of %d, "
                                   "%s>",
                                   name, description, dl_group_rank(group),
                                   dl_group_size(group), dl_group_backend(group));

    Py_XDECREF(name);
    Py_DECREF(description);
    return text;
}

static PyObject *
group_rank(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(dl_group_rank(dlpy_group_core(self)));
}

static PyObject *
group_size(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(dl_group_size(dlpy_group_core(self)));
}

/* In torch, name() is the backend's name; the group's name is `group_name`. */
static PyObject *
group_name(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyUnicode_FromString(dl_group_backend(dlpy_group_core(self)));
}

static PyObject *
group_get_store(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return read_field((dlpy_group *)self, &((dlpy_group *)self)->store);
}

/* torch's numbers of the kinds of failures, which ErrorType names in Python. */
static PyObject *
group_error_kind(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    switch (dl_group_admit(dlpy_group_core(self))) {
    case DL_OK:
        return PyLong_FromLong(0);
    case DL_TIMEOUT:
        return PyLong_FromLong(1);
    case DL_PEER_LOST:
        return PyLong_FromLong(3);
    default:
        return PyLong_FromLong(2);
    }
}

static PyObject *
group_set_timeout(PyObject *self, PyObject *const *values)
{
    dl_group *group = dlpy_group_core(self);
    int64_t limit;

    if (dlpy_timeout_from(values[0], DLPY_GROUP_TIMEOUT, &limit) < 0) {
        return NULL;
    }
    dl_group_set_timeout(group, limit);
    Py_RETURN_NONE;
}

DLPY_PARSED(group_set_timeout, "set_timeout", 1, "timeout")

dl_group *
dlpy_group_from(const dlpy_state *state, PyObject *object, const char *what)
{
    if (!dlpy_group_check(state, object)) {
        PyErr_Format(PyExc_TypeError, "%s must be a ProcessGroup, not %.200s", what,
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    return dlpy_group_core(object);
}

int
dlpy_group_rank_of(PyObject *object, int64_t global_rank, int *rank)
{
    int size = dl_group_size(dlpy_group_core(object));
    const int64_t *global_ranks = DLPY_LOAD(((dlpy_group *)object)->global_ranks);

    for (int i = 0; i < size; i++) {
        if (global_rank == (global_ranks == NULL ? i : global_ranks[i])) {
            *rank = i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "Global rank %lld is not part of group %R",
                 (long long)global_rank, object);
    return -1;
}

int64_t
dlpy_group_global_rank(PyObject *object, int rank)
{
    const int64_t *global_ranks = DLPY_LOAD(((dlpy_group *)object)->global_ranks);

    return global_ranks == NULL ? rank : global_ranks[rank];
}

/* The core's group is told at most once, before any other thread uses it. */
static PyObject *
group_set_global_ranks(PyObject *object, PyObject *ranks)
{
    dlpy_group *self = (dlpy_group *)object;
    dl_group *core = dlpy_group_core(object);
    int size = dl_group_size(core);
    PyObject *items = PyList_Check(ranks) ? PyList_AsTuple(ranks) : NULL;

    if (items == NULL || PyTuple_GET_SIZE(items) != size) {
        Py_XDECREF(items);
        PyErr_Format(PyExc_ValueError, "a list of %d ranks is needed", size);
        return NULL;
    }
    int64_t *global_ranks = PyMem_Malloc((size_t)size * sizeof *global_ranks);
    int result = 0;
    if (global_ranks == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    for (int i = 0; i < size && result == 0; i++) {
        result =
            dlpy_int64_from(PyTuple_GET_ITEM(items, i), "a rank", &global_ranks[i]);
    }
    Py_DECREF(items);
    Py_BEGIN_CRITICAL_SECTION(object);
    if (result == 0 && self->global_ranks != NULL) {
        result = keep_former(self, NULL, self->global_ranks);
    }
    if (result == 0) {
        DLPY_STORE(self->global_ranks, global_ranks);
    }
    Py_END_CRITICAL_SECTION();
    if (result < 0) {
        PyMem_Free(global_ranks);
        return NULL;
    }
    dlpy_group_keep_object_calls(object, NULL);
    if (dl_group_set_global_ranks(core, global_ranks) != DL_OK) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

/* dl_group_abort() cannot report an interrupt, so signals are held until the next call
 * or line of Python. */
static PyObject *
abort_group(PyObject *self, const char *reason)
{
    dl_group *group = dlpy_group_core(self);

    dlpy_event_of_abort(self, reason);
    DLPY_END(dl_group_abort(group, reason));
    Py_RETURN_NONE;
}

static PyObject *
group_abort(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return abort_group(self, "abort() was called");
}

/* Same as abort(), with the reason that the operations report. */
static PyObject *
group_abort_because(PyObject *self, PyObject *reason)
{
    const char *text = PyUnicode_AsUTF8(reason);

    return text == NULL ? NULL : abort_group(self, text);
}

static PyObject *
group_drain(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    bool is_open;

    DLPY_END(is_open = dl_group_drain(dlpy_group_core(self)));
    return PyBool_FromLong(is_open);
}

static void
describe_leaving(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    snprintf(text, DL_WAIT_ROW_TEXT, "leaving group %.48s", dl_group_name(subject));
}

static PyObject *
group_shutdown(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
    dl_group *group = dlpy_group_core(self);
    dl_waiting waiting;
    dl_status status;

    if (state == NULL) {
        return NULL;
    }
    dlpy_group_keep_object_calls(self, NULL); /* they refer to the group */
    dl_deadline deadline = dl_group_deadline(group);
    dlpy_waiting_enter(state, &waiting, describe_leaving, group, deadline);
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_finish(group, deadline);
    Py_END_ALLOW_THREADS
    dl_waiting_end(&waiting);
    /* Waits for the group's threads, which may need the GIL.  After Ctrl-C too: the
     * exception is raised by a group that is closed. */
    DLPY_END(dl_group_close(group));
    return status == DL_OK ? Py_NewRef(Py_None) : NULL;
}

static PyObject *
group_verify_calls(PyObject *self, PyObject *timeout)
{
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
    int64_t limit;
    dl_status status;

    if (state == NULL || dlpy_timeout_from(timeout, 0, &limit) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_verify_calls(dlpy_group_core(self), dl_deadline_after(limit));
    Py_END_ALLOW_THREADS
    return status == DL_OK ? Py_NewRef(Py_None) : dlpy_raise_collective(state, status);
}

static PyObject *
group_is_proved(PyObject *self, PyObject *rank)
{
    dl_group *group = dlpy_group_core(self);
    int64_t number;

    if (dlpy_int64_from(rank, "rank", &number) < 0) {
        return NULL;
    }
    if (number < -1 || number >= dl_group_size(group)) {
        return PyErr_Format(PyExc_ValueError, "rank %lld is not in the group",
                            (long long)number);
    }
    return PyBool_FromLong(dl_group_is_proved(group, (int)number));
}

static PyObject *
group_has_ended(PyObject *self, PyObject *rank)
{
    dl_group *group = dlpy_group_core(self);
    int64_t number;
    bool has_ended;

    if (dlpy_int64_from(rank, "rank", &number) < 0) {
        return NULL;
    }
    if (number < 0 || number >= dl_group_size(group)) {
        return PyErr_Format(PyExc_ValueError, "rank %lld is not in the group",
                            (long long)number);
    }
    Py_BEGIN_ALLOW_THREADS
    has_ended = dl_group_has_ended(group, (int)number);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(has_ended);
}

static PyObject *
group_sequence(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromUnsignedLongLong(dl_group_sequence(dlpy_group_core(self)));
}

PyObject *
dlpy_group_name(PyObject *object)
{
    dlpy_group *self = (dlpy_group *)object;
    PyObject *name;

    Py_BEGIN_CRITICAL_SECTION(object);
    if (self->name == NULL) {
        self->name = PyUnicode_FromString(dl_group_name(self->group));
    }
    name = Py_XNewRef(self->name);
    Py_END_CRITICAL_SECTION();
    return name;
}

static PyObject *
group_get_name(PyObject *self, void *Py_UNUSED(closure))
{
    return dlpy_group_name(self);
}

static PyObject *
set_text(PyObject *object, PyObject **field, const char *parameter, PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        return PyErr_Format(PyExc_TypeError, "%s must be str, not %s", parameter,
                            Py_TYPE(text)->tp_name);
    }
    Py_XDECREF(swap_field((dlpy_group *)object, field, Py_NewRef(text)));
    Py_RETURN_NONE;
}

/* Only the name by which Python finds and shows the group changes: errors of the core
 * have the one with which the ranks have met, which other threads may be reading. */
static PyObject *
group_set_name(PyObject *self, PyObject *name)
{
    return set_text(self, &((dlpy_group *)self)->name, "group_name", name);
}

static PyObject *
group_set_description(PyObject *self, PyObject *description)
{
    return set_text(self, &((dlpy_group *)self)->description, "group_desc",
                    description);
}

static PyObject *
group_get_timeout(PyObject *self, void *Py_UNUSED(closure))
{
    return dlpy_timedelta_from(dl_group_timeout(dlpy_group_core(self)));
}

/* The method _replace(): gives this object the core group and the store of another
 * group object, which may be dropped then.  Works and windows keep the former group. */
static PyObject *
group_replace(PyObject *object, PyObject *made)
{
    dlpy_group *self = (dlpy_group *)object;
    const dlpy_state *state = dlpy_state_of_type(Py_TYPE(object));
    dl_group *core = state == NULL ? NULL : dlpy_group_from(state, made, "made");
    int result = 0;

    if (core == NULL) {
        return NULL;
    }
    Py_BEGIN_CRITICAL_SECTION(object);
    if (self->global_ranks != NULL) {
        result = keep_former(self, NULL, self->global_ranks);
    }
    if (result == 0) {
        DLPY_STORE(self->global_ranks, NULL);
    }
    Py_END_CRITICAL_SECTION();
    if (result < 0 || replace_core(self, dl_group_ref(core)) < 0) {
        return NULL;
    }
    Py_XDECREF(swap_field(self, &self->store, group_get_store(made, NULL)));
    Py_RETURN_NONE;
}

/* The method _adopt(): sets the name and the store of a custom group once its creator
 * function has returned it. */
static PyObject *
group_adopt(PyObject *object, PyObject *args, PyObject *keywords)
{
    dlpy_group *self = (dlpy_group *)object;
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(object));
    dlpy_group told = {.group = NULL};

    if (state == NULL) {
        return NULL;
    }
    if (!self->is_custom) {
        PyErr_SetString(PyExc_RuntimeError, "the group has a name of its own");
        return NULL;
    }
    int result = dlpy_group_join(state, args, keywords, &told);
    if (result == 0) {
        result = replace_core(self, told.group);
    }
    if (result == 0) {
        Py_XDECREF(swap_field(self, &self->store, Py_NewRef(told.store)));
        Py_XDECREF(swap_field(self, &self->description, Py_NewRef(told.description)));
    }
    Py_XDECREF(told.store);
    Py_XDECREF(told.description);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *
dlpy_group_handler(PyObject *group)
{
    dlpy_group *self = (dlpy_group *)group;

    return read_field(self, &self->handler);
}

static PyObject *
group_set_handler(PyObject *object, PyObject *handler)
{
    dlpy_group *self = (dlpy_group *)object;
    PyObject *wanted = handler == Py_None ? NULL : Py_NewRef(handler);
    PyObject *former = swap_field(self, &self->handler, wanted);

    return former == NULL ? Py_NewRef(Py_None) : former;
}

static PyMethodDef group_methods[] = {
    {"rank", group_rank, METH_NOARGS, DLPY_DOC_PROCESSGROUP_RANK},
    {"size", group_size, METH_NOARGS, DLPY_DOC_PROCESSGROUP_SIZE},
    {"name", group_name, METH_NOARGS, DLPY_DOC_PROCESSGROUP_NAME},
    {"get_group_store", group_get_store, METH_NOARGS,
     DLPY_DOC_PROCESSGROUP_GET_GROUP_STORE},
    DLPY_FUNCTION("set_timeout", group_set_timeout_call,
                  DLPY_DOC_PROCESSGROUP_SET_TIMEOUT),
    {"_set_global_ranks", group_set_global_ranks, METH_O,
     DLPY_DOC_PROCESSGROUP__SET_GLOBAL_RANKS},
    {"_adopt", (PyCFunction)(void (*)(void))group_adopt, METH_VARARGS | METH_KEYWORDS,
     DLPY_DOC_PROCESSGROUP__ADOPT},
    {"_replace", group_replace, METH_O, DLPY_DOC_PROCESSGROUP__REPLACE},
    {"_set_group_name", group_set_name, METH_O, DLPY_DOC_PROCESSGROUP__SET_GROUP_NAME},
    {"_set_group_desc", group_set_description, METH_O,
     DLPY_DOC_PROCESSGROUP__SET_GROUP_DESC},
    {"_set_handler", group_set_handler, METH_O, DLPY_DOC_PROCESSGROUP__SET_HANDLER},
    {"abort", group_abort, METH_NOARGS, DLPY_DOC_PROCESSGROUP_ABORT},
    {"_abort", group_abort_because, METH_O, DLPY_DOC_PROCESSGROUP__ABORT},
    {"_drain", group_drain, METH_NOARGS, DLPY_DOC_PROCESSGROUP__DRAIN},
    {"_verify_calls", group_verify_calls, METH_O, DLPY_DOC_PROCESSGROUP__VERIFY_CALLS},
    {"_error_kind", group_error_kind, METH_NOARGS, DLPY_DOC_PROCESSGROUP__ERROR_KIND},
    {"_is_proved", group_is_proved, METH_O, DLPY_DOC_PROCESSGROUP__IS_PROVED},
    {"_has_ended", group_has_ended, METH_O, DLPY_DOC_PROCESSGROUP__HAS_ENDED},
    {"shutdown", group_shutdown, METH_NOARGS, DLPY_DOC_PROCESSGROUP_SHUTDOWN},
    {"_get_sequence_number_for_group", group_sequence, METH_NOARGS,
     DLPY_DOC_PROCESSGROUP__GET_SEQUENCE_NUMBER_FOR_GROUP},
    {0},
};

static PyGetSetDef group_properties[] = {
    {"group_name", group_get_name, NULL, DLPY_DOC_PROCESSGROUP_GROUP_NAME, NULL},
    {"group_desc", group_get_description, NULL, DLPY_DOC_PROCESSGROUP_GROUP_DESC, NULL},
    {"timeout", group_get_timeout, NULL, DLPY_DOC_PROCESSGROUP_TIMEOUT, NULL},
    {0},
};

static PyMemberDef group_members[] = {
    /* The way to declare weak references that works in Python 3.10 to 3.13. */
    {"__weaklistoffset__", T_PYSSIZET, offsetof(dlpy_group, weak_references), READONLY,
     NULL},
    {0},
};

static PyType_Slot group_slots[] = {
    {Py_tp_doc, DLPY_DOC_PROCESSGROUP},
    {Py_tp_new, group_new},
    {Py_tp_init, group_init},
    {Py_tp_traverse, group_traverse},
    {Py_tp_clear, group_clear},
    {Py_tp_dealloc, group_dealloc},
    {Py_tp_repr, group_repr},
    {Py_tp_methods, group_methods},
    {Py_tp_getset, group_properties},
    {Py_tp_members, group_members},
    {0, NULL},
};

static PyType_Spec group_spec = {
    .name = "distlite.ProcessGroup",
    .basicsize = sizeof(dlpy_group),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = group_slots,
};

static PyObject *
set_custom_handler(PyObject *module, PyObject *handler)
{
    dlpy_state *state = dlpy_state_of_module(module);

    dlpy_state_set(&state->custom_handler, handler);
    Py_RETURN_NONE;
}

/* Writes to the type's dict directly: for users the type is immutable, but
 * distlite/groups/group_methods.py, which is loaded after this module, adds torch's
 * forms of the operations, with option structs and overloads, which take longer to tell
 * apart than to call. */
static PyObject *
add_group_methods(PyObject *module, PyObject *methods)
{
    PyTypeObject *type = dlpy_state_of_module(module)->group_type;

    if (!PyDict_Check(methods)) {
        PyErr_SetString(PyExc_TypeError, "a dict of methods is needed");
        return NULL;
    }
    if (PyDict_Update(type->tp_dict, methods) < 0) {
        return NULL;
    }
    PyType_Modified(type);
    Py_RETURN_NONE;
}

static PyMethodDef module_functions[] = {
    {"_add_group_methods", add_group_methods, METH_O, DLPY_DOC__ADD_GROUP_METHODS},
    {"_set_custom_handler", set_custom_handler, METH_O, DLPY_DOC__SET_CUSTOM_HANDLER},
    {0},
};

const dlpy_part dlpy_group_type = {
    .functions = module_functions,
    .type = &group_spec,
    .slot = offsetof(dlpy_state, group_type),
};
