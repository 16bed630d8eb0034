/* SPDX-License-Identifier: BSD-3-Clause
 *
 * send, recv, isend and irecv as builtins, like the collectives, and the probes. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "python/groups/p2p_message.h"
#include "python/groups/p2p_op_type.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"
#include "python/record/events.h"

/* One of the functions. */
typedef struct form {
    dlpy_signature signature;
    dl_op_type op;
} form;

/* Returns as dlpy_collective_begin() does. */
static int
begin_message(dlpy_message *self, PyObject *module, const form *form, dlpy_call given)
{
    const dlpy_signature *signature = &form->signature;
    PyObject *values[DLPY_MESSAGE_ARGUMENTS];

    dlpy_message_init(self, form->op);
    if (dlpy_take_arguments(signature, given, values) < 0) {
        return -1;
    }
    int begun = dlpy_collective_begin_sync(module, signature, values,
                                           DLPY_MESSAGE_GROUP, &self->collective);
    if (begun <= 0) {
        return begun;
    }
    if (dlpy_message_take(self, values, "tensor") < 0
        || dlpy_message_note_write(self) < 0
        || dlpy_collective_check_stream(&self->collective) < 0) {
        dlpy_tensor_release(&self->tensor);
        dlpy_collective_give_up(&self->collective);
        return -1;
    }
    return 1;
}

/* The operations' names in torch's events. */
static PyObject *
begin_event(const dlpy_message *self)
{
    static const char *const names[] = {
        [DL_SEND] = "send", [DL_RECV] = "recv", [DL_RECV_ANY] = "recvAnySource"};

    return dlpy_events_want(&self->tensor)
               ? dlpy_event_begin(self->collective.group, names[self->core.op],
                                  self->array)
               : NULL;
}

/* The message is sent later, with the batch. */
static int
keep_for_batch(dlpy_message *self)
{
    PyObject *prepared = dlpy_message_prepare(self);
    PyObject *kept = prepared == NULL
                         ? NULL
                         : dlpy_work_join_batch(prepared, self->collective.group);

    Py_XDECREF(kept);
    return kept == NULL ? -1 : 0;
}

/* Sends or receives synchronously.  Returns 0, or -1 with an exception set.  Releases
 * everything but the group, and the array if its memory is still in use. */
static int
exchange_message(dlpy_message *self, int *source)
{
    dl_message_end end = {0};
    dl_group *group = self->collective.core;
    dl_deadline deadline =
        dl_deadline_after(dlpy_collective_timeout(&self->collective));
    dl_status status;
    dlpy_gil gil;

    dlpy_gil_leave(&gil, dl_group_are_brief(group, &self->core, 1));
    status = dl_group_exchange(group, &self->core, deadline, &end);
    status = dlpy_gil_return(&gil, status);
    *source = end.source;
    if (status != DL_OK) {
        dlpy_raise_collective(self->collective.state, status);
    } else if (dlpy_group_batch(self->collective.group) != NULL
               && keep_for_batch(self) < 0) {
        status = DL_NO_MEMORY;
    }
    if (end.keeps_memory) {
        dlpy_message_keep_forever(self);
    } else {
        dlpy_tensor_release(&self->tensor);
    }
    return status == DL_OK ? 0 : -1;
}

static PyObject *
post_message(dlpy_message *self)
{
    PyObject *event = begin_event(self);
    PyObject *prepared = dlpy_message_prepare(self);
    dl_group *group = self->collective.core;
    PyObject *result = NULL;
    dl_work *work;
    dl_status status;
    dlpy_gil gil;

    if (prepared != NULL) {
        dl_deadline deadline =
            dl_deadline_after(dlpy_collective_timeout(&self->collective));
        self->core.guard = dlpy_work_guard(prepared);
        self->core.is_work_optional = self->core.tensor.device == DL_CPU;
        /* No thread waits for the GIL while it holds the lock that this takes, but a
         * peer's large payload may be copied under the lock. */
        dlpy_gil_leave(&gil, dl_group_are_brief(group, &self->core, 1));
        status = dl_group_post(group, &self->core, deadline, &work);
        status = dlpy_gil_return(&gil, status);
        if (status == DL_OK) {
            result = work != NULL ? dlpy_work_begin(prepared, work)
                     : self->core.is_work_optional
                         ? dlpy_work_end(prepared, &self->core, deadline)
                         : dlpy_work_join_batch(prepared, self->collective.group);
        } else {
            Py_DECREF(prepared);
            dlpy_raise_collective(self->collective.state, status);
        }
    }
    dlpy_tensor_release(&self->tensor);
    Py_CLEAR(self->collective.group);
    return dlpy_collective_end_event(self->collective.state, event, result);
}

/* send and recv. */
static inline PyObject *
run_message(PyObject *module, const form *form, dlpy_call given)
{
    dlpy_message self;
    int begun = begin_message(&self, module, form, given);
    int source;

    if (begun <= 0) {
        return form->op == DL_RECV
                   ? dlpy_message_answer_receive(&self.collective, begun)
                   : dlpy_collective_answer(&self.collective, begun);
    }
    PyObject *event = begin_event(&self);
    PyObject *result = NULL;
    if (exchange_message(&self, &source) == 0) {
        result = form->op == DL_SEND ? Py_NewRef(Py_None)
                                     : PyLong_FromLongLong(dlpy_group_global_rank(
                                           self.collective.group, source));
    }
    Py_CLEAR(self.collective.group);
    return dlpy_event_end(event, result, false);
}

/* isend and irecv. */
static inline PyObject *
start_message(PyObject *module, const form *form, dlpy_call given)
{
    dlpy_message self;
    int begun = begin_message(&self, module, form, given);

    return begun <= 0 ? dlpy_collective_answer(&self.collective, begun)
                      : post_message(&self);
}

#define MESSAGE(name, body, type, peer)                                                \
    DLPY_BUILTIN(                                                                      \
        name, #name, body, form, .signature.required = 1,                              \
        .signature.names = {"tensor", peer, "group", "tag", "group_" peer, "*stream"}, \
        .op = type)

MESSAGE(send, run_message, DL_SEND, "dst")
MESSAGE(recv, run_message, DL_RECV, "src")
MESSAGE(isend, start_message, DL_SEND, "dst")
MESSAGE(irecv, start_message, DL_RECV, "src")

int
dlpy_message_direction(PyObject *function)
{
    if (!PyCFunction_Check(function)) {
        return -1;
    }
    PyCFunction found = PyCFunction_GET_FUNCTION(function);
    return found == (PyCFunction)(void (*)(void))isend   ? 1
           : found == (PyCFunction)(void (*)(void))irecv ? 0
                                                         : -1;
}

/* Groups with a handler check messages themselves, when they begin them. */
static PyObject *
check_message(PyObject *module, PyObject *const *values)
{
    int is_send;

    if ((is_send = PyObject_IsTrue(values[1])) < 0) {
        return NULL;
    }
    const dlpy_state *state = dlpy_state_of_module(module);
    if (!dlpy_group_check(state, values[2]) || dlpy_group_has_handler(values[2])) {
        Py_RETURN_NONE;
    }
    dlpy_message self = {.core.op = is_send ? DL_SEND : DL_RECV};
    PyObject *given[DLPY_MESSAGE_ARGUMENTS] = {values[0], NULL, values[2], values[3],
                                               values[4]};
    if (dlpy_message_take(&self, given, "tensor") < 0) {
        dlpy_tensor_release(&self.tensor);
        return NULL;
    }
    dl_status status = dl_group_check_message(dlpy_group_core(values[2]), &self.core);
    dlpy_tensor_release(&self.tensor);
    return status == DL_OK ? Py_NewRef(Py_None) : dlpy_raise_collective(state, status);
}

DLPY_PARSED(check_message, "_check_message", 5, "tensor", "is_send", "group", "tag",
            "group_peer")

static PyObject *
describe_probed(const dlpy_message *self, const dl_probed *found)
{
    char dtype[DL_DTYPE_TEXT_SIZE];

    dl_dtype_describe(found->dtype, found->opaque_code, dtype);
    return Py_BuildValue(
        "(LLsK)",
        (long long)dlpy_group_global_rank(self->collective.group, found->source),
        (long long)found->tag, dtype, (unsigned long long)found->size);
}

static void
append_number(char *text, size_t *size, const char *name, int64_t number)
{
    if (number < 0) {
        dl_text_append(text, DL_WAIT_ROW_TEXT, size, "any %s", name);
    } else {
        dl_text_append(text, DL_WAIT_ROW_TEXT, size, "%s %" PRId64, name, number);
    }
}

/* Writes what a probe waits for; the rank is that in the group. */
static void
describe_probe(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    const dlpy_message *self = subject;
    const char *group = dl_group_name(self->collective.core);
    size_t size = 0;

    dl_text_append(text, DL_WAIT_ROW_TEXT, &size, "probe(from ");
    append_number(text, &size, "rank", self->core.peer);
    dl_text_append(text, DL_WAIT_ROW_TEXT, &size, ", ");
    append_number(text, &size, "tag", self->core.tag);
    dl_text_append(text, DL_WAIT_ROW_TEXT, &size, ")");
    if (strcmp(group, "0") != 0) {
        dl_text_append(text, DL_WAIT_ROW_TEXT, &size, " in group %s", group);
    }
}

/* Both kinds of probes; None is any rank or any tag. */
static PyObject *
probe(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "_probe",
        .required = 5,
        .names = {"waits", "src", "group", "tag", "group_src"},
    };
    dlpy_message self = {.core = {.op = DL_RECV, .tag = DL_ANY_TAG}};
    PyObject *values[5];
    dl_waiting waiting;
    dl_probed found;
    dl_status status;
    dlpy_gil gil;
    bool waits, is_found;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_bool_from(values[0], "waits", &waits) < 0) {
        return NULL;
    }
    int begun =
        dlpy_collective_begin_sync(module, &signature, values, 2, &self.collective);
    if (begun <= 0) {
        return dlpy_collective_answer(&self.collective, begun);
    }
    if ((values[3] != Py_None && dlpy_int64_from(values[3], "tag", &self.core.tag) < 0)
        || dlpy_message_take_peer(&self, values[1], values[4]) < 0) {
        return dlpy_collective_give_up(&self.collective);
    }
    if (values[3] != Py_None && self.core.tag < 0) {
        PyErr_Format(PyExc_ValueError, "probe: tag %lld is negative",
                     (long long)self.core.tag);
        return dlpy_collective_give_up(&self.collective);
    }
    dl_deadline deadline = dl_deadline_after(dlpy_collective_timeout(&self.collective));
    /* The site is noted already, as for all operations. */
    dl_waiting_begin(&waiting, describe_probe, &self, deadline);
    dlpy_gil_leave(&gil, dl_group_are_brief(self.collective.core, &self.core, 1));
    status = dl_group_probe(self.collective.core, self.core.peer, self.core.tag, waits,
                            deadline, &found, &is_found);
    dl_waiting_end(&waiting);
    status = dlpy_gil_return(&gil, status);
    PyObject *result = status != DL_OK
                           ? dlpy_raise_collective(self.collective.state, status)
                       : is_found ? describe_probed(&self, &found)
                                  : Py_NewRef(Py_None);
    Py_CLEAR(self.collective.group);
    return result;
}

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_probe", probe, DLPY_DOC__PROBE),
    DLPY_FUNCTION("_check_message", check_message_call, DLPY_DOC__CHECK_MESSAGE),
    DLPY_FUNCTION("send", send, DLPY_DOC_SEND),
    DLPY_FUNCTION("recv", recv, DLPY_DOC_RECV),
    DLPY_FUNCTION("isend", isend, DLPY_DOC_ISEND),
    DLPY_FUNCTION("irecv", irecv, DLPY_DOC_IRECV),
    {0},
};

static const dlpy_number numbers[] = {
    {"_OBJECT_TAG", DL_OBJECT_TAG},
    {"_GATHER_TAG", DL_GATHER_TAG},
    {"_SIGNAL_TAG", DL_SIGNAL_TAG},
    {0},
};

const dlpy_part dlpy_p2p_functions = {.functions = functions, .numbers = numbers};
