/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/group_type.h"

#include <stdatomic.h>
#include <structmember.h>

#include "base/log.h"
#include "pg/agree/deadlock.h"
#include "pg/device/device.h"
#include "python/collective_functions.h"
#include "python/convert.h"
#include "python/cuda_arg.h"
#include "python/docstrings.h"
#include "python/errors.h"
#include "python/p2p_functions.h"
#include "python/reduce_op_arg.h"
#include "python/signals.h"

/* The group is complete when tp_new returns: no object exists that has not met its
 * peers, so no method needs to check. */
static PyObject *
group_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    const dlpy_state *state = dlpy_state_of_type(type);
    PyObject *self = state == NULL ? NULL : type->tp_alloc(type, 0);

    if (self == NULL) {
        return NULL;
    }
    int made = dlpy_group_is_custom(type, args, keywords)
                   ? dlpy_group_begin_custom(state, (dlpy_group *)self)
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
    Py_VISIT(self->batch);
    return 0;
}

static int
group_clear(PyObject *object)
{
    Py_CLEAR(((dlpy_group *)object)->store);
    Py_CLEAR(((dlpy_group *)object)->handler);
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
    if (self->group != NULL) {
        /* Dropping the last reference may wait for the lane's thread or a file's
         * lock. */
        dlpy_signals_hold();
        Py_BEGIN_ALLOW_THREADS
        dl_group_unref(self->group);
        Py_END_ALLOW_THREADS
        dlpy_signals_release();
    }
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject *
dlpy_group_batch(PyObject *group)
{
    PyObject *batch = ((dlpy_group *)group)->batch;

    return batch != NULL && dl_device_is_batching(dlpy_group_core(group)) ? batch
                                                                          : NULL;
}

static PyObject *
group_repr(PyObject *self)
{
    dl_group *group = dlpy_group_core(self);

    return PyUnicode_FromFormat("<distlite.ProcessGroup '%s' (%U): rank %d of %d, %s>",
                                dl_group_name(group), ((dlpy_group *)self)->description,
                                dl_group_rank(group), dl_group_size(group),
                                dl_group_backend(group));
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
    return Py_NewRef(((dlpy_group *)self)->store);
}

static PyObject *
group_set_timeout(PyObject *self, PyObject *const *args, Py_ssize_t count,
                  PyObject *keywords)
{
    static const dlpy_signature signature = {"set_timeout", 1, {"timeout"}};
    dl_group *group = dlpy_group_core(self);
    PyObject *values[1];
    int64_t limit;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_timeout_from(values[0], DLPY_GROUP_TIMEOUT, &limit) < 0) {
        return NULL;
    }
    dl_group_set_timeout(group, limit);
    Py_RETURN_NONE;
}

int
dlpy_group_rank_of(PyObject *object, int64_t global_rank, int *rank)
{
    const dlpy_group *self = (dlpy_group *)object;
    int size = dl_group_size(self->group);

    for (int i = 0; i < size; i++) {
        if (global_rank == (self->global_ranks == NULL ? i : self->global_ranks[i])) {
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
    const dlpy_group *self = (dlpy_group *)object;

    return self->global_ranks == NULL ? rank : self->global_ranks[rank];
}

/* Called at most once, before any other thread uses the group. */
static PyObject *
group_set_global_ranks(PyObject *object, PyObject *ranks)
{
    dlpy_group *self = (dlpy_group *)object;
    int size = dl_group_size(self->group);

    if (!PyList_Check(ranks) || PyList_GET_SIZE(ranks) != size) {
        PyErr_Format(PyExc_ValueError, "a list of %d ranks is needed", size);
        return NULL;
    }
    PyObject *items = PyList_AsTuple(ranks);
    int64_t *global_ranks = PyMem_Malloc((size_t)size * sizeof *global_ranks);
    int result = items == NULL ? -1 : 0;
    if (global_ranks == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    for (int i = 0; i < size && result == 0; i++) {
        result =
            dlpy_int64_from(PyTuple_GET_ITEM(items, i), "a rank", &global_ranks[i]);
    }
    Py_XDECREF(items);
    if (result < 0) {
        PyMem_Free(global_ranks);
        return NULL;
    }
    PyMem_Free(self->global_ranks);
    self->global_ranks = global_ranks;
    if (dl_group_set_global_ranks(self->group, global_ranks) != DL_OK) {
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

    dlpy_signals_hold();
    Py_BEGIN_ALLOW_THREADS
    dl_group_abort(group, reason);
    Py_END_ALLOW_THREADS
    dlpy_signals_release();
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
group_shutdown(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    dl_group *group = dlpy_group_core(self);

    /* Waits for the group's threads, which may need the GIL. */
    dlpy_signals_hold();
    Py_BEGIN_ALLOW_THREADS
    dl_group_close(group);
    Py_END_ALLOW_THREADS
    dlpy_signals_release();
    Py_RETURN_NONE;
}

static PyObject *
group_settle(PyObject *self, PyObject *timeout)
{
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
    int64_t limit;
    dl_status status;

    if (state == NULL || dlpy_timeout_from(timeout, 0, &limit) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_settle(dlpy_group_core(self), dl_deadline_after(limit));
    Py_END_ALLOW_THREADS
    return status == DL_OK ? Py_NewRef(Py_None) : dlpy_raise_collective(state, status);
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

    if (self->name == NULL) {
        self->name = PyUnicode_FromString(dl_group_name(self->group));
    }
    return self->name;
}

static PyObject *
group_get_name(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_XNewRef(dlpy_group_name(self));
}

static PyObject *
group_get_timeout(PyObject *self, void *Py_UNUSED(closure))
{
    return dlpy_timedelta_from(dl_group_timeout(dlpy_group_core(self)));
}

static PyMethodDef group_methods[] = {
    {"rank", group_rank, METH_NOARGS,
     "rank($self, /)\n--\n\n" DLPY_DOC_PROCESSGROUP_RANK},
    {"size", group_size, METH_NOARGS,
     "size($self, /)\n--\n\n" DLPY_DOC_PROCESSGROUP_SIZE},
    {"name", group_name, METH_NOARGS,
     "name($self, /)\n--\n\n" DLPY_DOC_PROCESSGROUP_NAME},
    {"get_group_store", group_get_store, METH_NOARGS,
     "get_group_store($self, /)\n--\n\n" DLPY_DOC_PROCESSGROUP_GET_GROUP_STORE},
    DLPY_FUNCTION(
        "set_timeout", group_set_timeout,
        "set_timeout($self, /, timeout)\n--\n\n" DLPY_DOC_PROCESSGROUP_SET_TIMEOUT),
    {"_set_global_ranks", group_set_global_ranks, METH_O,
     "_set_global_ranks($self, ranks, /)\n--\n\n"},
    {"_adopt", (PyCFunction)(void (*)(void))dlpy_group_adopt,
     METH_VARARGS | METH_KEYWORDS,
     "_adopt($self, /, store, rank, size, timeout=None, group_name='0', "
     "group_desc='undefined', backend='custom')\n--\n\n"},
    {"_set_handler", dlpy_group_set_handler, METH_O,
     "_set_handler($self, handler, /)\n--\n\n"},
    {"abort", group_abort, METH_NOARGS,
     "abort($self, /)\n--\n\n" DLPY_DOC_PROCESSGROUP_ABORT},
    {"_abort", group_abort_because, METH_O,
     "_abort($self, reason, /)\n--\n\nabort(), with a reason for the errors' text."},
    {"_settle", group_settle, METH_O,
     "_settle($self, timeout, /)\n--\n\n"
     "Compares calls that went ahead of other ranks' with theirs."},
    {"shutdown", group_shutdown, METH_NOARGS,
     "shutdown($self, /)\n--\n\n" DLPY_DOC_PROCESSGROUP_SHUTDOWN},
    {"_get_sequence_number_for_group", group_sequence, METH_NOARGS,
     "_get_sequence_number_for_group($self, /)\n--\n\nOperations begun so far."},
    {0},
};

static PyGetSetDef group_properties[] = {
    {"group_name", group_get_name, NULL, DLPY_DOC_PROCESSGROUP_GROUP_NAME, NULL},
    {"timeout", group_get_timeout, NULL, DLPY_DOC_PROCESSGROUP_TIMEOUT, NULL},
    {0},
};

static PyMemberDef group_members[] = {
    {"group_desc", T_OBJECT_EX, offsetof(dlpy_group, description), READONLY,
     DLPY_DOC_PROCESSGROUP_GROUP_DESC},
    /* The way to declare weak references that works in Python 3.10 to 3.13. */
    {"__weaklistoffset__", T_PYSSIZET, offsetof(dlpy_group, weak_references), READONLY,
     NULL},
    {0},
};

static PyType_Slot group_slots[] = {
    {Py_tp_doc, DLPY_DOC_PROCESSGROUP},
    {Py_tp_new, group_new},
    {Py_tp_init, dlpy_group_init},
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

/* The default group of a thread that acts as a rank.  The reference is borrowed: the
 * code that set it keeps the group alive until it is replaced. */
typedef struct thread_world {
    bool is_set;
    dlpy_group *group; /* NULL if it has no default group */
} thread_world;

static _Thread_local thread_world own_world;

/* True once any thread has set a default group; until then the lookup is skipped. */
static atomic_bool has_thread_groups;

PyObject *
dlpy_default_group(const dlpy_state *state)
{
    if (atomic_load_explicit(&has_thread_groups, memory_order_relaxed)
        && own_world.is_set) {
        return (PyObject *)own_world.group;
    }
    return state->default_group;
}

static PyObject *
set_thread_group(PyObject *module, PyObject *group)
{
    if (group != Py_None && !dlpy_group_check(dlpy_state_of_module(module), group)) {
        PyErr_Format(PyExc_TypeError, "a ProcessGroup or None is needed, not %s",
                     Py_TYPE(group)->tp_name);
        return NULL;
    }
    own_world = (thread_world){
        .is_set = true,
        .group = group == Py_None ? NULL : (dlpy_group *)group,
    };
    atomic_store(&has_thread_groups, true);
    Py_RETURN_NONE;
}

/* Also sets the rank that the core's log lines carry from here on. */
static PyObject *
set_default_group(PyObject *module, PyObject *group)
{
    dlpy_state *state = dlpy_state_of_module(module);

    if (group == Py_None) {
        dl_deadlock_set_world(NULL);
        Py_CLEAR(state->default_group);
        dl_log_set_rank(-1);
        Py_RETURN_NONE;
    }
    if (!dlpy_group_check(state, group)) {
        PyErr_Format(PyExc_TypeError, "WORLD must be a ProcessGroup or None, not %s",
                     Py_TYPE(group)->tp_name);
        return NULL;
    }
    dl_deadlock_set_world(dlpy_group_core(group));
    Py_XSETREF(state->default_group, Py_NewRef(group));
    dl_log_set_rank(dl_group_rank(dlpy_group_core(group)));
    Py_RETURN_NONE;
}

static PyObject *
set_custom_handler(PyObject *module, PyObject *handler)
{
    dlpy_state *state = dlpy_state_of_module(module);

    Py_XSETREF(state->custom_handler, Py_NewRef(handler));
    Py_RETURN_NONE;
}

static PyMethodDef module_functions[] = {
    DLPY_FUNCTION(
        "_group_refuse", dlpy_group_refuse,
        "_group_refuse($module, /, parent, ranks, rank, name, backend, reason)\n--\n\n"
        "Tells the other members of a group that this rank cannot make it."),
    {"_set_custom_handler", set_custom_handler, METH_O,
     "_set_custom_handler($module, handler, /)\n--\n\n"
     "What is asked first of groups that are subclasses with operations of their own."},
    {"_set_default_group", set_default_group, METH_O,
     "_set_default_group($module, group, /)\n--\n\n"
     "What collectives use that are given no group; None for no group."},
    {"_set_thread_group", set_thread_group, METH_O,
     "_set_thread_group($module, group, /)\n--\n\n"
     "The same for the calling thread alone, to its end; the group is borrowed."},
    DLPY_FUNCTION("_set_reduce_op_types", dlpy_set_reduce_op_types,
                  "_set_reduce_op_types($module, /, members, wrapper)\n--\n\n"
                  "The classes of reductions."),
    {0},
};

int
dlpy_add_group_types(PyObject *module)
{
    dlpy_state *state = dlpy_state_of_module(module);

    if (dlpy_add_type(module, &group_spec, NULL, &state->group_type) < 0
        || PyModule_AddFunctions(module, module_functions) < 0) {
        return -1;
    }
    if (dlpy_add_collective_functions(module) < 0) {
        return -1;
    }
    if (dlpy_add_collective_lists(module) < 0) {
        return -1;
    }
    if (dlpy_add_p2p_functions(module) < 0) {
        return -1;
    }
    return dlpy_add_device_functions(module);
}
