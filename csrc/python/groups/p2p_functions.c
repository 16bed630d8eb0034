/* SPDX-License-Identifier: BSD-3-Clause
 *
 * send, recv, isend and irecv as builtins, like the collectives. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "python/groups/collective_call.h"
#include "python/groups/default_group.h"
#include "python/groups/group_type.h"
#include "python/groups/p2p_op_type.h"
#include "python/groups/prepared_type.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"
#include "python/record/torch_profiler.h"
#include "tensor/strided.h"

/* send, recv, isend and irecv have the same parameters, except for the name of the
 * peer. */
#define ARGUMENT_COUNT 7

typedef struct call {
    dlpy_collective collective;
    dl_call core;
    dlpy_tensor tensor;
    PyObject *array; /* borrowed */
} call;

/* Clears what is read before it is set, which the dimensions of a tensor, most of the
 * struct, are not. */
static void
init_call(call *self, dl_op_type op)
{
    self->collective = (dlpy_collective){0};
    self->core = (dl_call){.op = op};
    self->tensor.owner = NULL;
    self->array = NULL;
}

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

/* Increments torch's version counter for each receive that begins. */
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
    dlpy_guard guard = {0};
    dlpy_work_keep keep = {.pins = tensor->owner == NULL
                                       ? Py_NewRef(self->array)
                                       : PyTuple_Pack(2, self->array, tensor->owner),
                           .guard = &guard};
    PyObject *prepared = NULL;

    if (keep.pins != NULL && dlpy_guard_add(&guard, self->array, tensor) == 0) {
        prepared = dlpy_work_prepare(self->collective.state, &keep);
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
        keep_forever(self);
    } else {
        dlpy_tensor_release(&self->tensor);
    }
    return status == DL_OK ? 0 : -1;
}

/* A send or receive that is started later. */
static PyObject *
postpone(call *self)
{
    dlpy_guard guard = {0};
    PyObject *result = NULL;

    if (dlpy_guard_add(&guard, self->array, &self->tensor) == 0) {
        dlpy_work_keep keep = {
            .pins = self->tensor.owner, .outputs = self->array, .guard = &guard};
        result = dlpy_prepared_new(self->collective.state, self->collective.group,
                                   &self->core, &keep, self->array,
                                   dlpy_collective_timeout(&self->collective));
    }
    dlpy_guard_clear(&guard);
    dlpy_tensor_release(&self->tensor);
    Py_CLEAR(self->collective.group);
    return result;
}

static PyObject *
post(call *self)
{
    if (self->collective.prepares) {
        return postpone(self);
    }
    PyObject *event = begin_event(self);
    PyObject *prepared = prepare(self);
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
    return dlpy_torch_event_end(self->collective.state, event, result);
}

static PyObject *
send(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "send",
        .required = 1,
        .names = {"tensor", "dst", "group", "tag", "group_dst", "*stream", "*_prepare"},
    };
    call self;
    init_call(&self, DL_SEND);
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
        .names = {"tensor", "src", "group", "tag", "group_src", "*stream", "*_prepare"},
    };
    call self;
    init_call(&self, DL_RECV);
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
        .names = {"tensor", "dst", "group", "tag", "group_dst", "*stream", "*_prepare"},
    };
    call self;
    init_call(&self, DL_SEND);
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords});

    return begun <= 0 ? dlpy_collective_answer(&self.collective, begun) : post(&self);
}

static PyObject *
irecv(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "irecv",
        .required = 1,
        .names = {"tensor", "src", "group", "tag", "group_src", "*stream", "*_prepare"},
    };
    call self;
    init_call(&self, DL_RECV);
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords});

    return begun <= 0 ? dlpy_collective_answer(&self.collective, begun) : post(&self);
}

/* Messages of one call that need no memory of their own: those of a grid of two
 * dimensions. */
#define NEAR_CALLS 8

/* The messages of one call: first the sends, then the receives. */
typedef struct exchange_calls {
    call *calls;
    dl_call *cores;
    dl_message_end *ends;
    int count;
    call near_calls[NEAR_CALLS];
    dl_call near_cores[NEAR_CALLS];
    dl_message_end near_ends[NEAR_CALLS];
} exchange_calls;

/* Returns -1 with an exception set if there is no memory; release_calls() must be
 * called in any case. */
static int
open_calls(exchange_calls *self, size_t most)
{
    self->count = 0;
    if (most <= NEAR_CALLS) {
        self->calls = self->near_calls;
        self->cores = self->near_cores;
        self->ends = self->near_ends;
        memset(self->ends, 0, sizeof self->near_ends);
        return 0;
    }
    self->calls = PyMem_Malloc(most * sizeof *self->calls);
    self->cores = PyMem_Malloc(most * sizeof *self->cores);
    self->ends = PyMem_Calloc(most, sizeof *self->ends);
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
    if (self->calls != self->near_calls) {
        PyMem_Free(self->calls);
        PyMem_Free(self->cores);
        PyMem_Free(self->ends);
    }
}

/* Returns the array at a place.  A tensor of torch is no sequence to Python, but has
 * items. */
static PyObject *
array_at(PyObject *arrays, Py_ssize_t place)
{
    if (PySequence_Check(arrays)) {
        return PySequence_GetItem(arrays, place);
    }
    PyObject *key = PyLong_FromSsize_t(place);
    PyObject *array = key == NULL ? NULL : PyObject_GetItem(arrays, key);

    Py_XDECREF(key);
    return array;
}

/* Adds the message with the neighbour at a place.  Returns 1, 0 if the array is on a
 * device or is to be seen by torch's profiler, or -1 with an exception set. */
static int
add_call(exchange_calls *self, const dlpy_collective *collective, PyObject *arrays,
         Py_ssize_t place, int peer, bool is_send)
{
    call *made = &self->calls[self->count];

    init_call(made, is_send ? DL_SEND : DL_RECV);
    made->collective = *collective;
    made->core.peer = peer;
    made->core.tag = is_send ? place : place ^ 1;
    made->array = array_at(arrays, place);
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

/* Receives are in the order of their tags, in which a neighbour at several places sends:
 * a message that is not received first would have to be kept. */
static int
add_calls(exchange_calls *self, const dlpy_collective *collective, PyObject *arrays,
          PyObject *peers, bool is_send)
{
    Py_ssize_t places = PyTuple_GET_SIZE(peers);
    int added = 1;

    for (Py_ssize_t tag = 0; added > 0 && tag < places; tag++) {
        Py_ssize_t place = is_send ? tag : tag ^ 1;
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
    dlpy_gil gil;

    for (int i = 0; i < self->count; i++) {
        self->cores[i] = self->calls[i].core;
    }
    dlpy_gil_leave(&gil,
                   dl_group_are_brief(collective->core, self->cores, self->count));
    status = dl_group_exchange_all(collective->core, self->cores, self->count, deadline,
                                   self->ends);
    status = dlpy_gil_return(&gil, status);
    if (status != DL_OK) {
        dlpy_raise_collective(collective->state, status);
        return -1;
    }
    return 1;
}

/* Checks that there is one array for each place.  The arrays may also be the parts of
 * one. */
static int
check_places(PyObject *arrays, const char *what, Py_ssize_t places)
{
    Py_ssize_t count = PyObject_Size(arrays);

    if (count < 0 || count == places) {
        return count < 0 ? -1 : 0;
    }
    PyErr_Format(PyExc_ValueError, "%zd %s for %zd places of neighbours", count, what,
                 places);
    return -1;
}

/* Exchanges arrays with the neighbours in a grid (cartesian_grid.py).  Returns False,
 * and has done nothing, if the core cannot serve the group or the arrays at once. */
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
    dlpy_collective collective = {0};

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values)
        < 0) {
        return NULL;
    }
    const dlpy_state *state = dlpy_state_of_module(module);
    if (!PyTuple_Check(values[2]) || PyTuple_GET_SIZE(values[2]) % 2 != 0
        || !dlpy_group_check(state, values[3])) {
        PyErr_SetString(PyExc_TypeError,
                        "peers must be a tuple of pairs, and group a group");
        return NULL;
    }
    Py_ssize_t places = PyTuple_GET_SIZE(values[2]);
    if (check_places(values[0], "outputs", places) < 0
        || check_places(values[1], "inputs", places) < 0) {
        return NULL;
    }
    if (dlpy_group_has_handler(values[3]) || dlpy_group_batch(values[3]) != NULL) {
        Py_RETURN_FALSE;
    }
    int begun = dlpy_collective_meet(module, &signature, values, 3, &collective);
    if (begun <= 0) {
        return dlpy_collective_answer(&collective, begun);
    }
    exchange_calls calls;
    int done = open_calls(&calls, 2 * (size_t)places);
    if (done == 0) {
        done = add_calls(&calls, &collective, values[1], values[2], true);
        done = done <= 0 ? done
                         : add_calls(&calls, &collective, values[0], values[2], false);
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

    init_call(made, is_send ? DL_SEND : DL_RECV);
    made->collective = *collective;
    made->array = Py_NewRef(values[0]);
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
 * at once.  An object that is not a group fails later. */
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
 * done nothing, if the core cannot serve the group or the arrays at once. */
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
        done = add_half(&calls, &collective, send, true);
        done = done <= 0 ? done : add_half(&calls, &collective, receive, false);
        done = done <= 0 ? done : check_apart(&calls);
        done = done <= 0 || note_write(&calls.calls[1]) == 0 ? done : -1;
        done = done <= 0 ? done : run_calls(&calls, &collective);
    }
    PyObject *result = done < 0    ? NULL
                       : done == 0 ? Py_NewRef(Py_None)
                                   : PyLong_FromLongLong(dlpy_group_global_rank(
                                         collective.group, calls.ends[1].source));
    release_calls(&calls);
    Py_CLEAR(collective.group);
    return result;
}

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

/* One message of a batch. */
typedef struct batch_message {
    call call;
    PyObject *prepared;
    Py_ssize_t place; /* in the program's list */
} batch_message;

/* Messages of a batch that need no memory of their own. */
#define NEAR_MESSAGES 4

/* The messages of a batch in the order in which they begin. */
typedef struct batch {
    batch_message *messages;
    dl_call *cores;
    dl_work **works;
    int count;
    batch_message near_messages[NEAR_MESSAGES];
    dl_call near_cores[NEAR_MESSAGES];
    dl_work *near_works[NEAR_MESSAGES];
} batch;

static int
open_batch(batch *self, Py_ssize_t count)
{
    size_t most = (size_t)count;

    self->count = 0;
    if (most <= NEAR_MESSAGES) {
        self->messages = self->near_messages;
        self->cores = self->near_cores;
        self->works = self->near_works;
        return 1;
    }
    self->messages = PyMem_Malloc(most * sizeof *self->messages);
    self->cores = PyMem_Malloc(most * sizeof *self->cores);
    self->works = PyMem_Malloc(most * sizeof(dl_work *));
    if (self->messages == NULL || self->cores == NULL || self->works == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 1;
}

static void
close_batch(batch *self)
{
    for (int i = 0; i < self->count; i++) {
        batch_message *message = &self->messages[i];
        dlpy_tensor_release(&message->call.tensor);
        Py_DECREF(message->call.array);
        Py_XDECREF(message->prepared);
    }
    if (self->messages != self->near_messages) {
        PyMem_Free(self->messages);
        PyMem_Free(self->cores);
        PyMem_Free(self->works);
    }
}

/* Takes the members of an operation, as new references.  Returns 1; 0 if it is not a
 * P2POp of this group; -1 if it is one in the other direction. */
static int
read_op(const dlpy_collective *collective, PyObject *object, bool is_send,
        dlpy_p2p_op *members)
{
    dlpy_p2p_op *op = (dlpy_p2p_op *)object;
    int result;

    if (!PyObject_TypeCheck(object, collective->state->p2p_op_type)) {
        return 0;
    }
    Py_BEGIN_CRITICAL_SECTION(object);
    int direction = op->op == NULL ? -1 : dlpy_message_direction(op->op);
    bool is_plain =
        direction >= 0 && op->tensor != NULL && op->group == collective->group;
    result = !is_plain ? 0 : direction != is_send ? -1 : 1;
    if (result > 0) {
        members->tensor = Py_NewRef(op->tensor);
        members->tag = Py_XNewRef(op->tag);
        members->group_peer = Py_XNewRef(op->group_peer);
    }
    Py_END_CRITICAL_SECTION();
    return result;
}

/* Returns 1 if the operation is in the batch, or is of the other direction; 0 if it
 * cannot be served at once; -1 with an exception set. */
static int
add_to_batch(batch *self, const dlpy_collective *collective, PyObject *operations,
             Py_ssize_t place, bool is_send)
{
    dlpy_p2p_op members;
    int read =
        read_op(collective, PyTuple_GET_ITEM(operations, place), is_send, &members);

    if (read <= 0) {
        return read < 0;
    }
    batch_message *made = &self->messages[self->count];
    PyObject *const given[ARGUMENT_COUNT] = {members.tensor, NULL, NULL, members.tag,
                                             members.group_peer};
    init_call(&made->call, is_send ? DL_SEND : DL_RECV);
    made->call.collective = *collective;
    made->call.array = members.tensor;
    made->prepared = NULL;
    made->place = place;
    int taken = take_array(&made->call, given, "tensor") == 0 ? 1 : -1;
    Py_XDECREF(members.tag);
    Py_XDECREF(members.group_peer);
    self->count++;
    if (taken > 0
        && (made->call.core.tensor.device != DL_CPU
            || dlpy_torch_profiler_wants(&made->call.tensor))) {
        return 0;
    }
    made->prepared = taken < 0 ? NULL : prepare(&made->call);
    if (made->prepared == NULL) {
        return -1;
    }
    made->call.core.guard = dlpy_work_guard(made->prepared);
    made->call.core.is_work_optional = true;
    self->cores[self->count - 1] = made->call.core;
    return 1;
}

/* Adds the receives, and then the sends, so that what arrives need not be kept until
 * its receive begins. */
static int
add_all(batch *self, const dlpy_collective *collective, PyObject *operations)
{
    Py_ssize_t count = PyTuple_GET_SIZE(operations);
    int added = 1;

    for (Py_ssize_t turn = 0; added > 0 && turn < 2 * count; turn++) {
        added = add_to_batch(self, collective, operations, turn % count, turn >= count);
    }
    for (int i = 0; added > 0 && i < self->count; i++) {
        added = note_write(&self->messages[i].call) < 0 ? -1 : 1;
    }
    return added;
}

static dl_status
post_batch(const batch *self, const dlpy_collective *collective, dl_deadline deadline)
{
    dl_group *group = collective->core;
    dlpy_gil gil;

    dlpy_gil_leave(&gil, dl_group_are_brief(group, self->cores, self->count));
    dl_status status =
        dl_group_post_all(group, self->cores, self->count, deadline, self->works);
    return dlpy_gil_return(&gil, status);
}

/* Returns the Works in the order of the program's list. */
static PyObject *
list_works(batch *self, dl_deadline deadline)
{
    PyObject *list = PyList_New(self->count);

    for (int i = 0; list != NULL && i < self->count; i++) {
        batch_message *message = &self->messages[i];
        PyObject *work =
            self->works[i] == NULL
                ? dlpy_work_end(message->prepared, &self->cores[i], deadline)
                : dlpy_work_begin(message->prepared, self->works[i]);
        PyList_SET_ITEM(list, message->place, work);
        self->works[i] = NULL;
        message->prepared = NULL;
    }
    return list;
}

/* Withdraws the messages that have begun, after a failure: nothing would wait for
 * them. */
static void
withdraw_begun(batch *self)
{
    for (int i = 0; i < self->count; i++) {
        if (self->works[i] != NULL) {
            dlpy_work_withdraw(
                dlpy_work_begin(self->messages[i].prepared, self->works[i]));
        }
    }
}

static PyObject *
run_batch(batch *self, const dlpy_collective *collective)
{
    dl_deadline deadline = dl_deadline_after(dlpy_collective_timeout(collective));
    dl_status status = post_batch(self, collective, deadline);
    PyObject *list = NULL;

    if (status != DL_OK) {
        dlpy_raise_collective(collective->state, status);
    } else {
        list = list_works(self, deadline);
    }
    if (list == NULL) {
        withdraw_begun(self);
    }
    return list;
}

/* Begins the operations of a list of P2POps in one call of the core.  Returns None, and
 * has done nothing, if that is not possible: for a list that is wrong, arrays on
 * devices, groups of other classes, batches, and torch's profiler. */
static PyObject *
begin_batch(PyObject *module, PyObject *list)
{
    static const dlpy_signature signature = {.function = "batch_isend_irecv"};
    dlpy_state *state = dlpy_state_of_module(module);
    PyObject *operations = PyList_CheckExact(list) ? PyList_AsTuple(list) : NULL;
    PyObject *first = operations != NULL && PyTuple_GET_SIZE(operations) > 0
                          ? PyTuple_GET_ITEM(operations, 0)
                          : NULL;
    PyObject *group = NULL;
    PyObject *result = NULL;
    dlpy_collective collective = {0};
    batch batch;

    if (first != NULL && PyObject_TypeCheck(first, state->p2p_op_type)) {
        Py_BEGIN_CRITICAL_SECTION(first);
        group = Py_XNewRef(((dlpy_p2p_op *)first)->group);
        Py_END_CRITICAL_SECTION();
    }
    int done = 0;
    if (group != NULL && dlpy_group_check(state, group)
        && is_served_at_once(state, group)) {
        done = dlpy_collective_meet(module, &signature, &group, 0, &collective);
    }
    if (done > 0) {
        done = open_batch(&batch, PyTuple_GET_SIZE(operations));
        done = done < 0 ? done : add_all(&batch, &collective, operations);
        result = done > 0 ? run_batch(&batch, &collective) : NULL;
        close_batch(&batch);
        Py_CLEAR(collective.group);
    }
    Py_XDECREF(group);
    Py_XDECREF(operations);
    return done == 0 && !PyErr_Occurred() ? Py_NewRef(Py_None) : result;
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
    const call *self = subject;
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
    call self = {.core = {.op = DL_RECV, .tag = DL_ANY_TAG}};
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
    /* The site is noted already, as for all operations. */
    dl_waiting_begin(&waiting, describe_probe, &self, deadline);
    dlpy_gil_leave(&gil, dl_group_are_brief(self.collective.core, &self.core, 1));
    status = dl_group_probe(self.collective.core, self.core.peer, self.core.tag, waits,
                            deadline, &found, &is_found);
    dl_waiting_end(&waiting);
    status = dlpy_gil_return(&gil, status);
    PyObject *result = status != DL_OK
                           ? dlpy_raise_collective(self.collective.state, status)
                       : is_found ? describe(&self, &found)
                                  : Py_NewRef(Py_None);
    Py_CLEAR(self.collective.group);
    return result;
}

static PyMethodDef functions[] = {
    {"_exchange", (PyCFunction)(void (*)(void))exchange_with_neighbours,
     METH_FASTCALL | METH_KEYWORDS,
     "_exchange($module, /, outputs, inputs, peers, group)\n--\n\n"},
    {"_sendrecv", (PyCFunction)(void (*)(void))sendrecv, METH_FASTCALL | METH_KEYWORDS,
     "_sendrecv($module, /, output, input, dst, src, group, tag, group_dst, "
     "group_src)\n--\n\n"},
    {"_batch", begin_batch, METH_O, "_batch($module, operations, /)\n--\n\n"},
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
