/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Several messages in one call of the core: sendrecv, batch_isend_irecv, and the
 * exchange with the neighbours in a grid.  Each does nothing, and says so, where the
 * core cannot serve the group or the arrays at once; Python's form of the function then
 * begins the messages one by one. */
#include <string.h>

#include "python/groups/default_group.h"
#include "python/groups/p2p_message.h"
#include "python/groups/p2p_op_type.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "tensor/strided.h"

/* Messages of one call that need no memory of their own: those of a grid of two
 * dimensions. */
#define NEAR_MESSAGES 8

typedef struct batch_message {
    dlpy_message message; /* owns its array */
    PyObject *prepared;   /* of a message that only begins; else NULL */
    Py_ssize_t place;     /* in the program's list */
} batch_message;

/* The messages of one call, in the order in which they begin. */
typedef struct batch {
    batch_message *messages;
    dl_call *cores;
    dl_message_end *ends; /* of messages that the call waits for */
    dl_work **works;      /* of messages that only begin */
    int count;
    batch_message near_messages[NEAR_MESSAGES];
    dl_call near_cores[NEAR_MESSAGES];
    dl_message_end near_ends[NEAR_MESSAGES];
    dl_work *near_works[NEAR_MESSAGES];
} batch;

/* Returns 1, or -1 with an exception set if there is no memory; close_batch() must be
 * called in any case. */
static int
open_batch(batch *self, Py_ssize_t count)
{
    size_t most = (size_t)count;

    self->count = 0;
    if (most <= NEAR_MESSAGES) {
        self->messages = self->near_messages;
        self->cores = self->near_cores;
        self->ends = memset(self->near_ends, 0, sizeof self->near_ends);
        self->works = self->near_works;
        return 1;
    }
    self->messages = PyMem_Malloc(most * sizeof *self->messages);
    self->cores = PyMem_Malloc(most * sizeof *self->cores);
    self->ends = PyMem_Calloc(most, sizeof *self->ends);
    self->works = PyMem_Malloc(most * sizeof(dl_work *));
    if (self->messages == NULL || self->cores == NULL || self->ends == NULL
        || self->works == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 1;
}

static void
close_batch(batch *self)
{
    for (int i = 0; i < self->count; i++) {
        dlpy_message *message = &self->messages[i].message;
        if (self->ends[i].keeps_memory) {
            dlpy_message_keep_forever(message);
        } else {
            dlpy_tensor_release(&message->tensor);
        }
        Py_DECREF(message->array);
        Py_XDECREF(self->messages[i].prepared);
    }
    if (self->messages != self->near_messages) {
        PyMem_Free(self->messages);
        PyMem_Free(self->cores);
        PyMem_Free(self->ends);
        PyMem_Free(self->works);
    }
}

/* Adds a message with these arguments of isend or irecv.  Returns 1; 0 if the array is
 * on a device or is to be seen by torch's profiler; -1 with an exception set. */
static int
add_message(batch *self, const dlpy_collective *collective, PyObject *const *given,
            const char *name, bool is_send)
{
    batch_message *kept = &self->messages[self->count];
    dlpy_message *made = &kept->message;

    dlpy_message_init(made, is_send ? DL_SEND : DL_RECV);
    made->collective = *collective;
    made->array = Py_NewRef(given[DLPY_MESSAGE_TENSOR]);
    kept->prepared = NULL;
    self->count++;
    if (dlpy_message_take(made, given, name) < 0) {
        return -1;
    }
    self->cores[self->count - 1] = made->core;
    return made->core.tensor.device == DL_CPU && !dlpy_events_want(&made->tensor);
}

/* Called once nothing can be refused any more.  Returns as add_message(). */
static int
note_writes(const batch *self)
{
    for (int i = 0; i < self->count; i++) {
        if (dlpy_message_note_write(&self->messages[i].message) < 0) {
            return -1;
        }
    }
    return 1;
}

/* Runs all messages.  Returns 1, or -1 with an exception set. */
static int
exchange_batch(batch *self, const dlpy_collective *collective)
{
    dl_deadline deadline = dl_deadline_after(dlpy_collective_timeout(collective));
    dl_group *group = collective->core;
    dlpy_gil gil;

    dlpy_gil_leave(&gil, dl_group_are_brief(group, self->cores, self->count));
    dl_status status =
        dl_group_exchange_all(group, self->cores, self->count, deadline, self->ends);
    status = dlpy_gil_return(&gil, status);
    if (status != DL_OK) {
        dlpy_raise_collective(collective->state, status);
        return -1;
    }
    return 1;
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

/* Adds the message with the neighbour at a place.  Returns as add_message(). */
static int
add_neighbour(batch *self, const dlpy_collective *collective, PyObject *arrays,
              Py_ssize_t place, PyObject *peer, bool is_send)
{
    PyObject *array = array_at(arrays, place);
    PyObject *tag = PyLong_FromSsize_t(is_send ? place : place ^ 1);
    PyObject *const given[DLPY_MESSAGE_ARGUMENTS] = {array, NULL, NULL, tag, peer};
    int added = -1;

    if (array == Py_None) {
        PyErr_Format(PyExc_ValueError,
                     "there is a neighbour at place %zd, but no %s for it", place,
                     is_send ? "input" : "output");
    } else if (array != NULL && tag != NULL) {
        added = add_message(self, collective, given, "tensor", is_send);
    }
    Py_XDECREF(array);
    Py_XDECREF(tag);
    return added;
}

/* Receives are in the order of their tags, in which a neighbour at several places sends:
 * a message that is not received first would have to be kept. */
static int
add_neighbours(batch *self, const dlpy_collective *collective, PyObject *arrays,
               PyObject *peers, bool is_send)
{
    Py_ssize_t places = PyTuple_GET_SIZE(peers);
    int added = 1;

    for (Py_ssize_t tag = 0; added > 0 && tag < places; tag++) {
        Py_ssize_t place = is_send ? tag : tag ^ 1;
        PyObject *peer = PyTuple_GET_ITEM(peers, place);
        if (peer != Py_None) {
            added = add_neighbour(self, collective, arrays, place, peer, is_send);
        }
    }
    return added;
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
    batch batch;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values)
        < 0) {
        return NULL;
    }
    dlpy_state *state = dlpy_state_of_module(module);
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
    if (!is_served_at_once(state, values[3])) {
        Py_RETURN_FALSE;
    }
    int begun = dlpy_collective_begin_sync(module, &signature, values, 3, &collective);
    if (begun <= 0) {
        return dlpy_collective_answer(&collective, begun);
    }
    int done = open_batch(&batch, 2 * places);
    for (int turn = 0; done > 0 && turn < 2; turn++) {
        bool is_send = turn == 0;
        done = add_neighbours(&batch, &collective, values[is_send], values[2], is_send);
    }
    done = done > 0 ? note_writes(&batch) : done;
    done = done > 0 ? exchange_batch(&batch, &collective) : done;
    close_batch(&batch);
    Py_CLEAR(collective.group);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

/* Returns as add_message(). */
static int
check_apart(const batch *self)
{
    if (!dl_tensors_overlap(&self->cores[0].tensor, &self->cores[1].tensor)) {
        return 1;
    }
    PyErr_SetString(PyExc_ValueError,
                    "sendrecv: output and input share memory, so what arrives would be "
                    "sent; pass a copy of one");
    return -1;
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
    batch batch;

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values)
        < 0) {
        return NULL;
    }
    if (!is_served_at_once(dlpy_state_of_module(module), values[4])) {
        Py_RETURN_NONE;
    }
    /* A warning names the function that the program has called. */
    static const dlpy_signature called = {.function = "sendrecv"};
    int begun = dlpy_collective_begin_sync(module, &called, values, 4, &collective);
    if (begun <= 0) {
        return dlpy_message_answer_receive(&collective, begun);
    }
    PyObject *const send[DLPY_MESSAGE_ARGUMENTS] = {values[1], values[2], NULL,
                                                    values[5], values[6]};
    PyObject *const receive[DLPY_MESSAGE_ARGUMENTS] = {values[0], values[3], NULL,
                                                       values[5], values[7]};
    int done = open_batch(&batch, 2);
    done = done > 0 ? add_message(&batch, &collective, send, "input", true) : done;
    done = done > 0 ? add_message(&batch, &collective, receive, "output", false) : done;
    done = done > 0 ? check_apart(&batch) : done;
    done = done > 0 ? note_writes(&batch) : done;
    done = done > 0 ? exchange_batch(&batch, &collective) : done;
    PyObject *result = done < 0    ? NULL
                       : done == 0 ? Py_NewRef(Py_None)
                                   : PyLong_FromLongLong(dlpy_group_global_rank(
                                         collective.group, batch.ends[1].source));
    close_batch(&batch);
    Py_CLEAR(collective.group);
    return result;
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

/* Adds the operation at a place of the list unless it is of the other direction.
 * Returns as add_message(). */
static int
add_op(batch *self, const dlpy_collective *collective, PyObject *operations,
       Py_ssize_t place, bool is_send)
{
    dlpy_p2p_op members;
    int read =
        read_op(collective, PyTuple_GET_ITEM(operations, place), is_send, &members);

    if (read <= 0) {
        return read < 0;
    }
    PyObject *const given[DLPY_MESSAGE_ARGUMENTS] = {members.tensor, NULL, NULL,
                                                     members.tag, members.group_peer};
    int at = self->count;
    batch_message *made = &self->messages[at];
    int added = add_message(self, collective, given, "tensor", is_send);
    Py_DECREF(members.tensor);
    Py_XDECREF(members.tag);
    Py_XDECREF(members.group_peer);
    if (added <= 0) {
        return added;
    }
    made->place = place;
    made->prepared = dlpy_message_prepare(&made->message);
    if (made->prepared == NULL) {
        return -1;
    }
    self->cores[at].guard = dlpy_work_guard(made->prepared);
    self->cores[at].is_work_optional = true;
    return 1;
}

/* Adds the receives, and then the sends, so that what arrives need not be kept until
 * its receive begins. */
static int
add_ops(batch *self, const dlpy_collective *collective, PyObject *operations)
{
    Py_ssize_t count = PyTuple_GET_SIZE(operations);
    int added = 1;

    for (Py_ssize_t turn = 0; added > 0 && turn < 2 * count; turn++) {
        added = add_op(self, collective, operations, turn % count, turn >= count);
    }
    return added > 0 ? note_writes(self) : added;
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
        done = dlpy_collective_begin_sync(module, &signature, &group, 0, &collective);
    }
    if (done > 0) {
        done = open_batch(&batch, PyTuple_GET_SIZE(operations));
        done = done > 0 ? add_ops(&batch, &collective, operations) : done;
        result = done > 0 ? run_batch(&batch, &collective) : NULL;
        close_batch(&batch);
        Py_CLEAR(collective.group);
    }
    Py_XDECREF(group);
    Py_XDECREF(operations);
    return done == 0 && !PyErr_Occurred() ? Py_NewRef(Py_None) : result;
}

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_exchange", exchange_with_neighbours, DLPY_DOC__EXCHANGE),
    DLPY_FUNCTION("_sendrecv", sendrecv, DLPY_DOC__SENDRECV),
    {"_batch", begin_batch, METH_O, DLPY_DOC__BATCH},
    {0},
};

const dlpy_part dlpy_p2p_batches = {.functions = functions};
