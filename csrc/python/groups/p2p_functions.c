/* SPDX-License-Identifier: BSD-3-Clause
 *
 * send, recv, isend and irecv as builtins, like the collectives. */
#include "python/groups/collective_call.h"
#include "python/groups/group_type.h"
#include "python/groups/prepared_type.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"
#include "python/record/torch_profiler.h"
#include "tensor/strided.h"

/* send, recv, isend and irecv have the same parameters, except for the name of the
 * peer. */
#define ARGUMENT_COUNT 6

typedef struct call {
    dlpy_collective collective;
    dl_call core;
    dlpy_tensor tensor;
    PyObject *array; /* borrowed */
} call;

static int
take_peer(call *self, PyObject *peer, PyObject *group_peer)
{
    bool is_given = (peer != NULL && peer != Py_None)
                    || (group_peer != NULL && group_peer != Py_None);

    if (self->core.op == DL_RECV && !is_given) {
        self->core.op = DL_RECV_ANY;
        self->core.peer = DL_ANY_RANK;
        return 0;
    }
    return dlpy_collective_root(&self->collective,
                                self->core.op == DL_SEND ? "dst" : "src", peer,
                                group_peer, -1, &self->core.peer);
}

static int
take_array(call *self, PyObject *const *values, const char *name)
{
    if (values[3] != NULL && dlpy_int64_from(values[3], "tag", &self->core.tag) < 0) {
        return -1;
    }
    if (take_peer(self, values[1], values[4]) < 0
        || dlpy_tensor_from(values[0], name, &self->tensor) < 0) {
        return -1;
    }
    self->core.tensor = self->tensor.view;
    self->array = values[0];
    return 0;
}

/* torch's count of writes to the array grows with each receive that begins. */
static int
note_write(const call *self)
{
    return self->core.op == DL_SEND
               ? 0
               : dlpy_tensor_note_write(&self->tensor, self->array);
}

/* Returns as dlpy_collective_begin() does. */
static int
begin(call *self, PyObject *module, const dlpy_signature *signature, dlpy_call given)
{
    PyObject *values[ARGUMENT_COUNT];

    if (dlpy_take_arguments(signature, given, values) < 0) {
        return -1;
    }
    int begun = dlpy_collective_meet(module, signature, values, 2, &self->collective);
    if (begun <= 0) {
        return begun;
    }
    if (take_array(self, values, "tensor") < 0 || note_write(self) < 0) {
        dlpy_tensor_release(&self->tensor);
        dlpy_collective_give_up(&self->collective);
        return -1;
    }
    if (dlpy_collective_check_stream(&self->collective) < 0) {
        dlpy_tensor_release(&self->tensor);
        dlpy_collective_give_up(&self->collective);
        return -1;
    }
    return 1;
}

/* The operations' names in torch's events. */
static PyObject *
begin_event(const call *self)
{
    static const char *const names[] = {
        [DL_SEND] = "send", [DL_RECV] = "recv", [DL_RECV_ANY] = "recvAnySource"};

    return dlpy_torch_profiler_wants(&self->tensor)
               ? dlpy_torch_event_begin(self->collective.group, names[self->core.op],
                                        self->array)
               : NULL;
}

static PyObject *
prepare(call *self)
{
    dlpy_tensor *tensor = &self->tensor;
    PyObject *owner = tensor->owner == NULL ? self->array : tensor->owner;
    dlpy_guard guard = {0};
    dlpy_work_keep keep = {.pins = PyTuple_Pack(2, self->array, owner),
                           .guard = &guard};
    PyObject *prepared = NULL;

    if (keep.pins != NULL && dlpy_guard_add(&guard, self->array, tensor) == 0) {
        prepared = dlpy_work_prepare(self->collective.state, keep);
    }
    if (prepared != NULL) {
        dlpy_work_name_group(prepared, self->collective.group);
    }
    dlpy_guard_clear(&guard);
    Py_XDECREF(keep.pins);
    return prepared;
}

/* The message is sent later, with the batch. */
static int
keep_for_batch(call *self)
{
    PyObject *prepared = prepare(self);
    PyObject *kept = prepared == NULL
                         ? NULL
                         : dlpy_work_join_batch(prepared, self->collective.group);

    Py_XDECREF(kept);
    return kept == NULL ? -1 : 0;
}

/* Keeps the array, and the memory that it has now, for good. */
static void
keep_forever(call *self)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    if (prepare(self) == NULL) {
        PyErr_Clear();
        Py_INCREF(self->array); /* the owner of a view is not released, either */
    }
    PyErr_Restore(type, value, trace);
}

/* Sends or receives synchronously.  Returns 0, or -1 with an exception set.  Releases
 * everything but the group, and the array if its memory is still in use. */
static int
exchange(call *self, int *source)
{
    dl_message_end end = {0};
    dl_group *group = self->collective.core;
    dl_deadline deadline =
        dl_deadline_after(dlpy_collective_timeout(&self->collective));
    dl_status status;

    Py_BEGIN_ALLOW_THREADS
    status = dl_group_exchange(group, &self->core, deadline, &end);
    Py_END_ALLOW_THREADS
    *source = end.source;
    if (status != DL_OK) {
        dlpy_raise_collective(self->collective.state, status);
    } else if (dlpy_group_batch(self->collective.group) != NULL
               && keep_for_batch(self) < 0) {
        status = DL_NO_MEMORY;
    }
    if (end.keeps_memory) {
        keep_forever(self);
    } else {
        dlpy_tensor_release(&self->tensor);
    }
    return status == DL_OK ? 0 : -1;
}

static PyObject *
post(call *self)
{
    PyObject *event = begin_event(self);
    PyObject *prepared = prepare(self);
    dl_group *group = self->collective.core;
    PyObject *result = NULL;
    dl_work *work;
    dl_status status;

    if (prepared != NULL) {
        dl_deadline deadline =
            dl_deadline_after(dlpy_collective_timeout(&self->collective));
        self->core.guard = dlpy_work_guard(prepared);
        /* No thread waits for the GIL while it holds the lock that this takes, but a
         * peer's large payload may be copied under the lock. */
        Py_BEGIN_ALLOW_THREADS
        status = dl_group_post(group, &self->core, deadline, &work);
        Py_END_ALLOW_THREADS
        if (status == DL_OK) {
            result = work == NULL
                         ? dlpy_work_join_batch(prepared, self->collective.group)
                         : dlpy_work_begin(prepared, work);
        } else {
            Py_DECREF(prepared);
            dlpy_raise_collective(self->collective.state, status);
        }
    }
    dlpy_tensor_release(&self->tensor);
    Py_CLEAR(self->collective.group);
    return dlpy_torch_event_end(self->collective.state, event, result);
}

static PyObject *
send(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "send",
        .required = 1,
        .names = {"tensor", "dst", "group", "tag", "group_dst", "*stream"},
    };
    call self = {.core.op = DL_SEND};
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords});

    if (begun <= 0) {
        return dlpy_collective_answer(&self.collective, begun);
    }
    int source;
    PyObject *event = begin_event(&self);
    PyObject *result = exchange(&self, &source) < 0 ? NULL : Py_NewRef(Py_None);
    Py_CLEAR(self.collective.group);
    return dlpy_torch_event_end(self.collective.state, event, result);
}

/* A process outside of the group receives nothing; the result is -1. */
static PyObject *
answer_of_recv(call *self, int begun)
{
    PyObject *answer = dlpy_collective_answer(&self->collective, begun);

    if (answer == Py_None) {
        Py_DECREF(answer);
        return PyLong_FromLong(-1);
    }
    return answer;
}

static PyObject *
recv(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "recv",
        .required = 1,
        .names = {"tensor", "src", "group", "tag", "group_src", "*stream"},
    };
    call self = {.core.op = DL_RECV};
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords});
    int source;

    if (begun <= 0) {
        return answer_of_recv(&self, begun);
    }
    PyObject *event = begin_event(&self);
    PyObject *result = NULL;
    if (exchange(&self, &source) == 0) {
        result =
            PyLong_FromLongLong(dlpy_group_global_rank(self.collective.group, source));
    }
    Py_CLEAR(self.collective.group);
    return dlpy_torch_event_end(self.collective.state, event, result);
}

static PyObject *
isend(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "isend",
        .required = 1,
        .names = {"tensor", "dst", "group", "tag", "group_dst", "*stream"},
    };
    call self = {.core.op = DL_SEND};
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords});

    return begun <= 0 ? dlpy_collective_answer(&self.collective, begun) : post(&self);
}

static PyObject *
irecv(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "irecv",
        .required = 1,
        .names = {"tensor", "src", "group", "tag", "group_src", "*stream"},
    };
    call self = {.core.op = DL_RECV};
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords});

    return begun <= 0 ? dlpy_collective_answer(&self.collective, begun) : post(&self);
}

/* The messages of one rank with its neighbours: first the receives, then the sends. */
typedef struct exchange_calls {
    call *calls;
    dl_call *cores;
    dl_message_end *ends;
    int count;
} exchange_calls;

/* Returns -1 with an exception set if there is no memory; release_calls() is due in any
 * case. */
static int
open_calls(exchange_calls *self, size_t most)
{
    *self = (exchange_calls){.calls = PyMem_Malloc(most * sizeof *self->calls),
                             .cores = PyMem_Malloc(most * sizeof *self->cores),
                             .ends = PyMem_Calloc(most, sizeof *self->ends)};
    if (self->calls == NULL || self->cores == NULL || self->ends == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void
release_calls(exchange_calls *self)
{
    for (int i = 0; i < self->count; i++) {
        if (self->ends[i].keeps_memory) {
            keep_forever(&self->calls[i]);
        } else {
            dlpy_tensor_release(&self->calls[i].tensor);
        }
        Py_DECREF(self->calls[i].array);
    }
    PyMem_Free(self->calls);
    PyMem_Free(self->cores);
    PyMem_Free(self->ends);
}

/* Adds the message with the neighbour at a place.  Returns 1, 0 if the array is on a
 * device or is to be seen by torch's profiler, or -1 with an exception set. */
static int
add_call(exchange_calls *self, const dlpy_collective *collective, PyObject *arrays,
         Py_ssize_t place, int peer, bool is_send)
{
    call *made = &self->calls[self->count];

    *made = (call){.collective = *collective,
                   .core = {.op = is_send ? DL_SEND : DL_RECV,
                            .peer = peer,
                            .tag = is_send ? place : place ^ 1},
                   .array = PySequence_GetItem(arrays, place)};
    if (made->array == NULL) {
        return -1;
    }
    self->count++;
    if (made->array == Py_None) {
        PyErr_Format(PyExc_ValueError,
                     "there is a neighbour at place %zd, but no %s for it", place,
                     is_send ? "input" : "output");
        return -1;
    }
    if (dlpy_tensor_from(made->array, "tensor", &made->tensor) < 0) {
        return -1;
    }
    made->core.tensor = made->tensor.view;
    if (made->core.tensor.device != DL_CPU
        || dlpy_torch_profiler_wants(&made->tensor)) {
        return 0;
    }
    return note_write(made) < 0 ? -1 : 1;
}

static int
add_calls(exchange_calls *self, const dlpy_collective *collective, PyObject *arrays,
          PyObject *peers, bool is_send)
{
    Py_ssize_t places = PyTuple_GET_SIZE(peers);
    int added = 1;

    for (Py_ssize_t place = 0; added > 0 && place < places; place++) {
        PyObject *peer = PyTuple_GET_ITEM(peers, place);
        int rank;
        if (peer != Py_None) {
            added = dlpy_rank_from(peer, "peer", &rank) < 0
                        ? -1
                        : add_call(self, collective, arrays, place, rank, is_send);
        }
    }
    return added;
}

static int
run_calls(exchange_calls *self, const dlpy_collective *collective)
{
    dl_deadline deadline = dl_deadline_after(dlpy_collective_timeout(collective));
    dl_status status;

    for (int i = 0; i < self->count; i++) {
        self->cores[i] = self->calls[i].core;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_exchange_all(collective->core, self->cores, self->count, deadline,
                                   self->ends);
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        dlpy_raise_collective(collective->state, status);
        return -1;
    }
    return 1;
}

/* Exchanges arrays with the neighbours in a grid (cartesian_grid.py).  Returns False,
 * and has done nothing, if the group or the arrays are none that the core serves at
 * once. */
static PyObject *
exchange_with_neighbours(PyObject *module, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "_exchange",
        .required = 4,
        .names = {"outputs", "inputs", "peers", "group"},
    };
    PyObject *values[4];
    dlpy_collective collective;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values)
        < 0) {
        return NULL;
    }
    const dlpy_state *state = dlpy_state_of_module(module);
    if (!PyTuple_Check(values[2]) || !dlpy_group_check(state, values[3])) {
        PyErr_SetString(PyExc_TypeError, "peers must be a tuple, and group a group");
        return NULL;
    }
    if (((dlpy_group *)values[3])->handler != NULL
        || dlpy_group_batch(values[3]) != NULL) {
        Py_RETURN_FALSE;
    }
    int begun = dlpy_collective_meet(module, &signature, values, 3, &collective);
    if (begun <= 0) {
        return dlpy_collective_answer(&collective, begun);
    }
    size_t most = 2 * (size_t)PyTuple_GET_SIZE(values[2]) + 1;
    exchange_calls calls;
    int done = open_calls(&calls, most);
    if (done == 0) {
        done = add_calls(&calls, &collective, values[0], values[2], false);
        done = done <= 0 ? done
                         : add_calls(&calls, &collective, values[1], values[2], true);
        done = done <= 0 ? done : run_calls(&calls, &collective);
    }
    release_calls(&calls);
    Py_CLEAR(collective.group);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

/* Adds the receive or the send of sendrecv().  Returns as add_call(). */
static int
add_half(exchange_calls *self, const dlpy_collective *collective,
         PyObject *const *values, bool is_send)
{
    PyObject *const given[ARGUMENT_COUNT] = {values[0], values[1], NULL, values[2],
                                             values[3]};
    call *made = &self->calls[self->count];

    *made = (call){.collective = *collective,
                   .core.op = is_send ? DL_SEND : DL_RECV,
                   .array = Py_NewRef(values[0])};
    self->count++;
    if (take_array(made, given, is_send ? "input" : "output") < 0) {
        return -1;
    }
    return made->core.tensor.device == DL_CPU
           && !dlpy_torch_profiler_wants(&made->tensor);
}

static int
check_apart(const exchange_calls *self)
{
    if (!dl_tensors_overlap(&self->calls[0].core.tensor, &self->calls[1].core.tensor)) {
        return 1;
    }
    PyErr_SetString(PyExc_ValueError,
                    "sendrecv: output and input share memory, so what arrives would be "
                    "sent; pass a copy of one");
    return -1;
}

/* Returns whether the core can serve messages of the group, NULL for the default one,
 * at once.  What is no group fails later. */
static bool
is_served_at_once(dlpy_state *state, PyObject *given)
{
    PyObject *group = given == NULL || given == Py_None ? dlpy_default_group(state)
                                                        : Py_NewRef(given);
    bool is_served =
        group == NULL || !dlpy_group_check(state, group)
        || (!dlpy_group_has_handler(group) && dlpy_group_batch(group) == NULL);

    Py_XDECREF(group);
    return is_served;
}

/* Sends one array and receives another, in one call of the core.  Returns None, and has
 * done nothing, if the group or the arrays are none that it serves at once. */
static PyObject *
sendrecv(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "_sendrecv",
        .required = 8,
        .names = {"output", "input", "dst", "src", "group", "tag", "group_dst",
                  "group_src"},
    };
    PyObject *values[8];
    dlpy_collective collective = {0};
    exchange_calls calls;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values)
        < 0) {
        return NULL;
    }
    if (!is_served_at_once(dlpy_state_of_module(module), values[4])) {
        Py_RETURN_NONE;
    }
    /* A warning names the function that the program has called. */
    static const dlpy_signature called = {.function = "sendrecv"};
    int begun = dlpy_collective_meet(module, &called, values, 4, &collective);
    if (begun <= 0) {
        return answer_of_recv(&(call){.collective = collective}, begun);
    }
    PyObject *const receive[] = {values[0], values[3], values[5], values[7]};
    PyObject *const send[] = {values[1], values[2], values[5], values[6]};
    int done = open_calls(&calls, 2);
    if (done == 0) {
        done = add_half(&calls, &collective, receive, false);
        done = done <= 0 ? done : add_half(&calls, &collective, send, true);
        done = done <= 0 ? done : check_apart(&calls);
        done = done <= 0 || note_write(&calls.calls[0]) == 0 ? done : -1;
        done = done <= 0 ? done : run_calls(&calls, &collective);
    }
    PyObject *result = done < 0    ? NULL
                       : done == 0 ? Py_NewRef(Py_None)
                                   : PyLong_FromLongLong(dlpy_group_global_rank(
                                         collective.group, calls.ends[0].source));
    release_calls(&calls);
    Py_CLEAR(collective.group);
    return result;
}

/* Groups with a handler check messages themselves, when they begin them. */
static PyObject *
check_message(PyObject *module, PyObject *const *args, Py_ssize_t count,
              PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "_check_message",
        .required = 5,
        .names = {"tensor", "is_send", "group", "tag", "group_peer"},
    };
    PyObject *values[5];
    int is_send;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || (is_send = PyObject_IsTrue(values[1])) < 0) {
        return NULL;
    }
    const dlpy_state *state = dlpy_state_of_module(module);
    if (!dlpy_group_check(state, values[2]) || dlpy_group_has_handler(values[2])) {
        Py_RETURN_NONE;
    }
    call self = {.core.op = is_send ? DL_SEND : DL_RECV};
    PyObject *given[ARGUMENT_COUNT] = {values[0], NULL, values[2], values[3],
                                       values[4]};
    if (take_array(&self, given, "tensor") < 0) {
        dlpy_tensor_release(&self.tensor);
        return NULL;
    }
    dl_status status = dl_group_check_message(dlpy_group_core(values[2]), &self.core);
    dlpy_tensor_release(&self.tensor);
    return status == DL_OK ? Py_NewRef(Py_None) : dlpy_raise_collective(state, status);
}

static PyObject *
describe(const call *self, const dl_probed *found)
{
    char dtype[DL_DTYPE_TEXT_SIZE];

    dl_dtype_describe(found->dtype, found->opaque_code, dtype);
    return Py_BuildValue(
        "(LLsK)",
        (long long)dlpy_group_global_rank(self->collective.group, found->source),
        (long long)found->tag, dtype, (unsigned long long)found->size);
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
    call self = {.core = {.op = DL_RECV, .tag = DL_ANY_TAG}};
    PyObject *values[5];
    dl_probed found;
    dl_status status;
    bool waits, is_found;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_bool_from(values[0], "waits", &waits) < 0) {
        return NULL;
    }
    int begun = dlpy_collective_meet(module, &signature, values, 2, &self.collective);
    if (begun <= 0) {
        return dlpy_collective_answer(&self.collective, begun);
    }
    if ((values[3] != Py_None && dlpy_int64_from(values[3], "tag", &self.core.tag) < 0)
        || take_peer(&self, values[1], values[4]) < 0) {
        return dlpy_collective_give_up(&self.collective);
    }
    if (values[3] != Py_None && self.core.tag < 0) {
        PyErr_Format(PyExc_ValueError, "probe: tag %lld is negative",
                     (long long)self.core.tag);
        return dlpy_collective_give_up(&self.collective);
    }
    dl_deadline deadline = dl_deadline_after(dlpy_collective_timeout(&self.collective));
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_probe(self.collective.core, self.core.peer, self.core.tag, waits,
                            deadline, &found, &is_found);
    Py_END_ALLOW_THREADS
    PyObject *result = status != DL_OK
                           ? dlpy_raise_collective(self.collective.state, status)
                       : is_found ? describe(&self, &found)
                                  : Py_NewRef(Py_None);
    Py_CLEAR(self.collective.group);
    return result;
}

/* A send or receive that is started later. */
static PyObject *
prepare_message(PyObject *module, PyObject *const *args, Py_ssize_t count,
                PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "_prepare_message",
        .required = 6,
        .names = {"tensor", "peer", "group", "tag", "group_peer", "is_send"},
    };
    call self = {.collective.prepares = true};
    PyObject *values[6];
    PyObject *result = NULL;
    dlpy_guard guard = {0};
    bool is_send;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_bool_from(values[5], "is_send", &is_send) < 0) {
        return NULL;
    }
    int begun = dlpy_collective_meet(module, &signature, values, 2, &self.collective);
    if (begun <= 0) {
        return dlpy_collective_answer(&self.collective, begun);
    }
    self.core.op = is_send ? DL_SEND : DL_RECV;
    if (take_array(&self, values, "tensor") == 0 && note_write(&self) == 0
        && dlpy_guard_add(&guard, self.array, &self.tensor) == 0) {
        dlpy_work_keep keep = {
            .pins = self.tensor.owner, .outputs = self.array, .guard = &guard};
        result =
            dlpy_prepared_new(self.collective.state, self.collective.group, &self.core,
                              keep, dlpy_collective_timeout(&self.collective));
    }
    dlpy_guard_clear(&guard);
    dlpy_tensor_release(&self.tensor);
    Py_CLEAR(self.collective.group);
    return result;
}

static PyMethodDef functions[] = {
    {"_prepare_message", (PyCFunction)(void (*)(void))prepare_message,
     METH_FASTCALL | METH_KEYWORDS,
     "_prepare_message($module, /, tensor, peer, group, tag, group_peer, is_send)"
     "\n--\n\n"},
    {"_exchange", (PyCFunction)(void (*)(void))exchange_with_neighbours,
     METH_FASTCALL | METH_KEYWORDS,
     "_exchange($module, /, outputs, inputs, peers, group)\n--\n\n"},
    {"_sendrecv", (PyCFunction)(void (*)(void))sendrecv, METH_FASTCALL | METH_KEYWORDS,
     "_sendrecv($module, /, output, input, dst, src, group, tag, group_dst, "
     "group_src)\n--\n\n"},
    {"_probe", (PyCFunction)(void (*)(void))probe, METH_FASTCALL | METH_KEYWORDS,
     "_probe($module, /, waits, src, group, tag, group_src)\n--\n\n"},
    {"_check_message", (PyCFunction)(void (*)(void))check_message,
     METH_FASTCALL | METH_KEYWORDS,
     "_check_message($module, /, tensor, is_send, group, tag, group_peer)\n--\n\n"},
    DLPY_COLLECTIVE(send, "send($module, /, tensor, dst=None, group=None, tag=0, "
                          "group_dst=None, *, stream=None)\n--\n\n" DLPY_DOC_SEND),
    DLPY_COLLECTIVE(recv, "recv($module, /, tensor, src=None, group=None, tag=0, "
                          "group_src=None, *, stream=None)\n--\n\n" DLPY_DOC_RECV),
    DLPY_COLLECTIVE(isend, "isend($module, /, tensor, dst=None, group=None, tag=0, "
                           "group_dst=None, *, stream=None)\n--\n\n" DLPY_DOC_ISEND),
    DLPY_COLLECTIVE(irecv, "irecv($module, /, tensor, src=None, group=None, tag=0, "
                           "group_src=None, *, stream=None)\n--\n\n" DLPY_DOC_IRECV),
    {0},
};

int
dlpy_add_p2p_functions(PyObject *module)
{
    if (dlpy_add_functions(module, functions) < 0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "_OBJECT_TAG", DL_OBJECT_TAG);
}
