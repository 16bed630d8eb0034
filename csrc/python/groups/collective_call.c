/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/collective_call.h"

#include <string.h>

#include "python/arrays/cuda_arg.h"
#include "python/groups/default_group.h"
#include "python/groups/reducer_type.h"
#include "python/module/convert.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/record/call_site.h"

/* The value of GroupMember.NON_GROUP_MEMBER, which stands for a group that this process
 * is not in. */
#define NON_GROUP_MEMBER (-100)

static bool
is_outside(PyObject *group)
{
    return PyLong_CheckExact(group) && PyLong_AsLong(group) == NON_GROUP_MEMBER;
}

static int
warn_outside(dlpy_state *state, const char *function)
{
    PyObject *world = dlpy_default_group(state);
    int rank = world == NULL ? -1 : dl_group_rank(dlpy_group_core(world));

    Py_XDECREF(world);
    return PyErr_WarnFormat(PyExc_UserWarning, 1,
                            "Running %s on global rank %d which does not belong to "
                            "the given group.",
                            function, rank);
}

static int
fail_group(PyObject *group)
{
    /* PyLong_AsLong() in is_outside() sets an exception for a number out of range. */
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError,
                 "Process group %R is not initialized in the world group map. Please "
                 "initialize the group first%s.",
                 group,
                 PyList_Check(group) || PyTuple_Check(group)
                     ? "; new_group() makes a group of a list of ranks"
                     : "");
    return -1;
}

static int
find_group(dlpy_state *state, PyObject *object, const char *function, PyObject **group)
{
    if (object == NULL || object == Py_None) {
        *group = dlpy_default_group(state);
        if (*group == NULL) {
            PyErr_SetString(
                PyExc_ValueError,
                "Default process group has not been initialized, please make "
                "sure to call init_process_group.");
            return -1;
        }
        return 1;
    }
    if (dlpy_group_check(state, object)) {
        *group = Py_NewRef(object);
        return 1;
    }
    if (!is_outside(object)) {
        return fail_group(object);
    }
    return warn_outside(state, function) < 0 ? -1 : 0;
}

static int
take_keyword(const char *name, PyObject *value, dlpy_collective *self)
{
    if (strcmp(name, "_timeout") == 0) {
        self->has_timeout = true;
        return dlpy_timeout_from(value, -1, &self->timeout);
    }
    /* A handler gets the stream as it is. */
    if (dlpy_group_has_handler(self->group)) {
        return 0;
    }
    self->has_stream = dlpy_cuda_name_stream(value) == 0;
    return self->has_stream ? 0 : -1;
}

/* Reads the keyword-only arguments, the last names of the signature. */
static int
take_keywords(const dlpy_signature *signature, PyObject *const *values, int group,
              dlpy_collective *self)
{
    int i = group + 1;

    while (signature->names[i] != NULL && signature->names[i][0] != '*') {
        i++;
    }
    for (; signature->names[i] != NULL; i++) {
        if (values[i] != NULL && values[i] != Py_None
            && take_keyword(signature->names[i] + 1, values[i], self) < 0) {
            dlpy_collective_give_up(self);
            return -1;
        }
    }
    return 0;
}

int
dlpy_collective_end_stream(dlpy_collective *self)
{
    self->has_stream = false;
    if (dlpy_cuda_unname_stream()) {
        return 0;
    }
    PyErr_SetString(
        PyExc_ValueError,
        "`stream` is for arrays on devices; these arrays are in the CPU's memory");
    return -1;
}

static PyObject *
given_by_name(const dlpy_signature *signature, PyObject *const *values)
{
    PyObject *given = PyDict_New();

    for (int i = 0; given != NULL && i < DLPY_ARGUMENTS_LIMIT; i++) {
        if (signature->names[i] == NULL) {
            break;
        }
        if (values[i] != NULL
            && PyDict_SetItemString(given, dlpy_argument_name(signature, i), values[i])
                   < 0) {
            Py_CLEAR(given);
        }
    }
    return given;
}

/* Calls the group's handler with the function's name and a dict of the arguments given.
 * Returns 1 if the core must carry out the operation; 0 if `*answer` is the function's
 * result, a new reference unless it is None; -1 with an exception set.  Unless it
 * returns 1, drops the caller's reference to the group. */
static int
call_handler(PyObject *group, const dlpy_signature *signature, PyObject *const *values,
             PyObject **answer)
{
    /* The handler may be replaced while it runs, and may be gone by now. */
    PyObject *handler = dlpy_group_handler(group);
    if (handler == NULL) {
        return 1;
    }
    PyObject *given = given_by_name(signature, values);
    PyObject *result = NULL;

    if (given != NULL) {
        result =
            PyObject_CallFunction(handler, "OsO", group, signature->function, given);
        Py_DECREF(given);
    }
    Py_DECREF(handler);
    if (result == Py_NotImplemented) {
        Py_DECREF(result);
        return 1;
    }
    Py_DECREF(group);
    *answer = result;
    if (result == Py_None) {
        Py_DECREF(result);
    }
    return result == NULL ? -1 : 0;
}

/* Begins a call whose `is_async` is known. */
static inline int
begin_call(dlpy_state *state, const dlpy_signature *signature, PyObject *const *values,
           int group, dlpy_collective *self)
{
    self->state = state;
    self->has_timeout = false;
    self->has_stream = false;
    self->inputs = NULL;
    self->reducer = NULL;
    int found = find_group(state, values[group], signature->function, &self->group);
    if (found <= 0) {
        self->answer = Py_None;
        return found;
    }
    self->core = dlpy_group_core(self->group);
    dlpy_recorded_site_enter(self->state);
    if (take_keywords(signature, values, group, self) < 0) {
        return -1;
    }
    if (!dlpy_group_has_handler(self->group)) {
        return 1;
    }
    return call_handler(self->group, signature, values, &self->answer);
}

int
dlpy_collective_begin_sync(PyObject *module, const dlpy_signature *signature,
                           PyObject *const *values, int group, dlpy_collective *self)
{
    return begin_call(dlpy_state_of_module(module), signature, values, group, self);
}

int
dlpy_collective_begin(PyObject *module, const dlpy_signature *signature,
                      PyObject *const *values, int group, dlpy_collective *self)
{
    PyObject *async_op = values[group + 1];
    self->is_async = false;
    /* Anything but False is checked: a reduction or a group in this position means that
     * the caller's arguments are in a different order. */
    if (async_op != NULL && async_op != Py_False
        && dlpy_bool_from(async_op, "async_op", &self->is_async) < 0) {
        return -1;
    }
    return begin_call(dlpy_state_of_module(module), signature, values, group, self);
}

PyObject *
dlpy_collective_answer(const dlpy_collective *self, int begun)
{
    if (begun < 0) {
        return NULL;
    }
    /* `answer` is a new reference unless it is None. */
    return self->answer == Py_None ? Py_NewRef(Py_None) : self->answer;
}

PyObject *
dlpy_collective_give_up(dlpy_collective *self)
{
    if (self->has_stream) {
        dlpy_cuda_unname_stream();
    }
    Py_CLEAR(self->group);
    Py_CLEAR(self->reducer);
    return NULL;
}

int
dlpy_collective_root(const dlpy_collective *self, const char *name, PyObject *peer,
                     PyObject *group_peer, int otherwise, int *root)
{
    bool has_peer = peer != NULL && peer != Py_None;
    bool has_group_peer = group_peer != NULL && group_peer != Py_None;
    int64_t rank;

    if (!has_peer && !has_group_peer && otherwise >= 0) {
        *root = otherwise;
        return 0;
    }
    if (has_peer == has_group_peer) {
        PyErr_Format(
            PyExc_ValueError,
            has_peer
                ? "Can't specify both group_rank and global_rank: %s and group_%s"
                : "Must specify global_rank or group_rank: %s or group_%s, as in %s=0",
            name, name, name);
        return -1;
    }
    if (!has_peer) {
        return dlpy_rank_from(group_peer, name[0] == 's' ? "group_src" : "group_dst",
                              root);
    }
    return dlpy_int64_from(peer, name, &rank) < 0
               ? -1
               : dlpy_group_rank_of(self->group, rank, root);
}

/* Makes a Work, which keeps the reducer, too. */
static PyObject *
prepare_call(const dlpy_collective *self, const dlpy_work_keep *keep)
{
    dlpy_work_keep kept = *keep;
    PyObject *pins = NULL;

    if (self->reducer != NULL) {
        pins = keep->pins == NULL ? PyTuple_Pack(1, self->reducer)
                                  : PyTuple_Pack(2, self->reducer, keep->pins);
        if (pins == NULL) {
            return NULL;
        }
        kept.pins = pins;
    }
    PyObject *prepared = dlpy_work_prepare(self->state, &kept);
    Py_XDECREF(pins);
    return prepared;
}

/* An interrupt of an operation that was run ends the call. */
static dl_status
submit_without_gil(dl_group *group, const dl_call *call, dl_deadline deadline,
                   dl_work **work)
{
    dlpy_gil gil;

    dlpy_gil_leave(&gil, false);
    dl_status submitted = dl_group_submit(group, call, deadline, work);
    dl_status status = dlpy_gil_return(&gil, submitted);
    if (status != submitted) {
        dl_work_unref(*work);
    }
    return status;
}

static PyObject *
submit_call(dlpy_collective *self, dl_call *call, const dlpy_work_keep *keep,
            dl_deadline deadline)
{
    PyObject *prepared = prepare_call(self, keep);
    dl_work *work;
    dl_status status;

    if (prepared == NULL) {
        return NULL;
    }
    dlpy_work_name_group(prepared, self->group);
    call->guard = dlpy_work_guard(prepared);
    if (dl_call_is_on_device(call)) {
        /* May block: the first operation on a device, or one that is compared, meets
         * the other ranks, and the first call of CUDA takes long. */
        status = submit_without_gil(self->core, call, deadline, &work);
    } else {
        status = dl_group_submit(self->core, call, deadline, &work);
    }
    if (status != DL_OK) {
        Py_DECREF(prepared);
        return dlpy_raise_collective(self->state, status);
    }
    return work == NULL ? dlpy_work_join_batch(prepared, self->group)
                        : dlpy_work_begin(prepared, work);
}

static dl_status
run_blocking(dl_group *group, const dl_call *call, dl_deadline deadline)
{
    dlpy_gil gil;

    dlpy_gil_leave(&gil, dl_group_is_brief(group, call));
    dl_status status = dl_group_run(group, call, deadline);
    return dlpy_gil_return(&gil, status);
}

static inline PyObject *
carry_out_call(dlpy_collective *self, dl_call *call, const dlpy_work_keep *keep,
               dl_deadline deadline)
{
    if (self->is_async) {
        return submit_call(self, call, keep, deadline);
    }
    dl_status status = run_blocking(self->core, call, deadline);
    if (status != DL_OK) {
        return dlpy_raise_collective(self->state, status);
    }
    if (dlpy_group_batch(self->group) != NULL) {
        /* The operation may be part of the open batch.  If it is not, keeping its
         * arrays until the batch ends is harmless. */
        PyObject *prepared = dlpy_work_prepare(self->state, keep);
        return prepared == NULL ? NULL : dlpy_work_join_batch(prepared, self->group);
    }
    Py_RETURN_NONE;
}

PyObject *
dlpy_collective_end_event(const dlpy_state *state, PyObject *event, PyObject *result)
{
    bool is_of_work = event != NULL && result != NULL
                      && PyObject_TypeCheck(result, state->work_type)
                      && dlpy_work_take_event(result, event);

    return dlpy_event_end(event, result, is_of_work);
}

static PyObject *
carry_out_as_event(dlpy_collective *self, dl_call *call, const dlpy_work_keep *keep,
                   dl_deadline deadline)
{
    PyObject *event =
        dlpy_event_begin(self->group, dl_op_type_name((uint8_t)call->op), self->inputs);

    return dlpy_collective_end_event(self->state, event,
                                     carry_out_call(self, call, keep, deadline));
}

PyObject *
dlpy_collective_finish_by(dlpy_collective *self, dl_call *call,
                          const dlpy_work_keep *keep, dl_deadline deadline)
{
    if (dlpy_collective_check_stream(self) < 0) {
        return dlpy_collective_give_up(self);
    }
    PyObject *result = self->inputs == NULL
                           ? carry_out_call(self, call, keep, deadline)
                           : carry_out_as_event(self, call, keep, deadline);
    if (self->reducer != NULL && result == NULL) {
        dlpy_reducer_explain(self->reducer);
    }
    Py_CLEAR(self->group);
    Py_CLEAR(self->reducer);
    return result;
}

PyObject *
dlpy_collective_finish(dlpy_collective *self, dl_call *call, const dlpy_work_keep *keep)
{
    return dlpy_collective_finish_by(self, call, keep,
                                     dl_deadline_after(dlpy_collective_timeout(self)));
}
