/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls on objects, which ranks begin with blocks of one size: a header, and behind it
 * the object's stream of bytes if that has room, so that small objects need one
 * operation only, in which a rank waits only for those that have an object for it.  Here
 * they are packed, exchanged and loaded.  Whatever is not so simple is up to
 * object_call.py, which also describes the header; its numbers are little-endian. */
#include "python/objects/object_call.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "pg/backend.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/objects/safe_codec.h"
#include "python/record/call_site.h"

/* Of a header in bytes, and where its numbers of 64 bits are. */
#define HEAD 32
#define COUNT_AT 8
#define SIZE_AT 16
#define PARTS_AT 24

/* The bits of a call's kind, which is in the byte at offset 4: objects are data, not
 * pickles; the rank cannot take part. */
#define KIND_AT 4
#define SAFE 1
#define FAILED 2

/* The first byte of a pickle, which begins no data. */
#define PICKLE 0x80

/* The bytes for a stream: sending as many costs about as much as sending none. */
#define ROOM 480
#define BLOCK (HEAD + ROOM)

/* Blocks of so many ranks are on the stack: allocating memory takes as long as the
 * exchange. */
#define NEAR 8

/* Memory of this size or more is not part of a pickle's stream, but a part beside it,
 * which is a transfer of its own: less is cheaper to copy. */
#define PART_LEAST (64 << 10)

/* One call on its way.  The blocks of all ranks are one behind the other. */
typedef struct exchange {
    dlpy_object_call *call;
    dlpy_state *state;
    dl_group *group;
    dl_call core;
    int count;         /* of the blocks that this rank holds: of all ranks, or one */
    int index;         /* of its own block among them */
    bool gives_all;    /* sends a block to each rank: the source of a scatter */
    bool takes_all;    /* gets a block of each rank */
    bool gives;        /* has objects to send */
    bool is_small;     /* what it sends has room in the blocks */
    bool is_near;      /* the memory is on the stack */
    bool is_over;      /* the blocks have been moved */
    uint8_t own[HEAD]; /* its own header */
    size_t used;       /* bytes of the blocks that it sends */
    PyObject *given;   /* bytes, or a Message; of a scatter a list of them; or NULL */
    uint8_t *memory;
    dl_tensor *views;
    dl_tensor near_views[NEAR];
    uint8_t near[NEAR * BLOCK];
} exchange;

static const dl_op_type operations[] = {
    [DLPY_BROADCAST_OBJECTS] = DL_BROADCAST, [DLPY_ALL_GATHER_OBJECTS] = DL_ALL_GATHER,
    [DLPY_GATHER_OBJECTS] = DL_GATHER,       [DLPY_SCATTER_OBJECTS] = DL_SCATTER,
    [DLPY_SEND_OBJECTS] = DL_SEND,           [DLPY_RECV_OBJECTS] = DL_RECV,
};

/* Makes room for the blocks, which are zero: a backend that moves nothing leaves the
 * others' as they are. */
static int
make_blocks(exchange *self)
{
    const dlpy_object_call *call = self->call;
    bool is_root = call->rank == call->root;
    dl_op_type op = self->core.op;

    bool has_all =
        op == DL_ALL_GATHER || ((op == DL_GATHER || op == DL_SCATTER) && is_root);
    self->gives_all = has_all && op == DL_SCATTER;
    self->takes_all = has_all && op != DL_SCATTER;
    self->gives = op == DL_ALL_GATHER || op == DL_GATHER || op == DL_SEND
                  || (op != DL_RECV && is_root);
    self->count = has_all ? dl_group_size(self->group) : 1;
    self->index = has_all ? dl_group_rank(self->group) : 0;
    size_t size = (size_t)self->count * BLOCK;
    /* An MPI may use the memory for longer than the call. */
    self->is_near = self->count <= NEAR && strcmp(dl_group_backend(self->group), "mpi");
    self->memory = self->is_near ? self->near : PyMem_RawMalloc(size);
    self->views = self->is_near
                      ? self->near_views
                      : PyMem_RawMalloc((size_t)self->count * sizeof *self->views);
    if (self->memory == NULL || self->views == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(self->memory, 0, size);
    for (int i = 0; i < self->count; i++) {
        self->views[i] = (dl_tensor){
            .data = self->memory + (size_t)i * BLOCK,
            .count = BLOCK,
            .item_size = 1,
            .dtype = DL_UINT8,
            .ndim = 1,
            .is_contiguous = true,
            .is_writable = true,
        };
    }
    return 0;
}

static void
free_blocks(exchange *self)
{
    if (!self->is_near) {
        PyMem_RawFree(self->memory);
        PyMem_RawFree(self->views);
    }
    Py_XDECREF(self->given);
}

static void
put_number(uint8_t *block, size_t offset, uint64_t number)
{
    memcpy(block + offset, &number, sizeof number);
}

static uint64_t
number_at(const exchange *self, int index, size_t offset)
{
    uint64_t number;

    memcpy(&number, (const uint8_t *)self->views[index].data + offset, sizeof number);
    return number;
}

/* The buffer callback of pickling: adds large memory to the list of parts, and lets the
 * pickle have the other.  Read-only memory, whose pickle would load as a read-only
 * array, ends the pickling, with None in the list. */
static PyObject *
take_buffer(PyObject *parts, PyObject *buffer)
{
    PyObject *view = PyObject_CallMethod(buffer, "raw", NULL);
    if (view == NULL) {
        return NULL;
    }
    const Py_buffer *memory = PyMemoryView_GET_BUFFER(view);
    int result = 1;

    if (memory->readonly) {
        PyErr_SetString(PyExc_BufferError, "read-only memory");
        (void)PyList_Append(parts, Py_None);
        result = -1;
    } else if (memory->len >= PART_LEAST) {
        result = PyList_Append(parts, view);
    }
    Py_DECREF(view);
    return result < 0 ? NULL : PyBool_FromLong(result);
}

static PyMethodDef buffer_taker = {"take_buffer", take_buffer, METH_O, NULL};

/* Returns the stream of a pickle, or NULL with an exception set. */
static PyObject *
dump_object(const dlpy_state *state, PyObject *value, PyObject *parts)
{
    PyObject *taker = PyCFunction_New(&buffer_taker, parts);
    PyObject *protocol = PyLong_FromLong(5);
    PyObject *stream = NULL;

    if (taker != NULL && protocol != NULL) {
        PyObject *const args[] = {value, protocol, taker};
        stream = PyObject_Vectorcall(state->pickle_dumps, args, 2, state->pickle_words);
    }
    Py_XDECREF(taker);
    Py_XDECREF(protocol);
    return stream;
}

/* Takes the exception that is set, unless it ends the program. */
static PyObject *
take_error(void)
{
    return PyErr_ExceptionMatches(PyExc_Exception) ? dlpy_error_take() : NULL;
}

/* Returns a stream, or the Message of what is no stream alone. */
static PyObject *
pack_object(const exchange *self, PyObject *value)
{
    PyObject *stream = NULL, *parts = NULL, *error = NULL, *message = NULL;
    uint8_t data[ROOM];
    Py_ssize_t size = dlpy_data_encode(value, data, ROOM);

    if (size >= 0) {
        return PyBytes_FromStringAndSize((const char *)data, size);
    }
    if ((self->call->kind & SAFE) == 0) {
        parts = PyList_New(0);
        stream = parts == NULL ? NULL : dump_object(self->state, value, parts);
        if (stream != NULL && PyList_GET_SIZE(parts) == 0) {
            Py_DECREF(parts);
            return stream;
        }
        error = stream == NULL ? take_error() : NULL;
    }
    if (!PyErr_Occurred()) {
        message = PyObject_CallMethod((PyObject *)self->call, "pack", "OOOO", value,
                                      stream ? stream : Py_None,
                                      parts ? parts : Py_None, error ? error : Py_None);
    }
    Py_XDECREF(stream);
    Py_XDECREF(parts);
    Py_XDECREF(error);
    return message;
}

/* Packs what this rank gives: one object for each rank in a scatter, or one. */
static int
pack_all(exchange *self, PyObject *value)
{
    if (!self->gives_all) {
        bool is_list = self->core.op == DL_BROADCAST || self->core.op == DL_SEND;
        /* A copy of a list: to pickle it may run code that changes it. */
        PyObject *copy = is_list ? PySequence_List(value) : Py_NewRef(value);
        self->given = copy == NULL ? NULL : pack_object(self, copy);
        Py_XDECREF(copy);
        return self->given == NULL ? -1 : 0;
    }
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != self->count) {
        PyErr_SetString(PyExc_TypeError, "not a tuple with an object for each rank");
        return -1;
    }
    /* While pickles run code, which may see all lists, this one has no place without an
     * object. */
    self->given = PyList_New(0);
    for (int i = 0; self->given != NULL && i < self->count; i++) {
        if (dlpy_append(self->given, pack_object(self, PyTuple_GET_ITEM(value, i)))
            < 0) {
            return -1;
        }
    }
    return self->given == NULL ? -1 : 0;
}

/* Writes the blocks that this rank sends.  Returns false if Python must: for Messages,
 * and for a scatter of which not all have room, so that the headers differ. */
static bool
put_streams(exchange *self, Py_ssize_t count)
{
    bool is_list = self->given != NULL && PyList_Check(self->given);

    for (int i = 0; i < (self->gives_all ? self->count : 1); i++) {
        PyObject *stream = is_list ? PyList_GET_ITEM(self->given, i) : self->given;
        uint8_t *block = self->views[self->gives_all ? i : self->index].data;
        if (stream != NULL && !PyBytes_CheckExact(stream)) {
            return false;
        }
        size_t size = stream == NULL ? 0 : (size_t)PyBytes_GET_SIZE(stream);
        self->is_small = size <= ROOM;
        if (!self->is_small && self->gives_all) {
            return false;
        }
        memcpy(block, "DLO3", KIND_AT);
        block[KIND_AT] = (uint8_t)self->call->kind;
        put_number(block, COUNT_AT, self->gives_all ? 0 : (uint64_t)count);
        put_number(block, SIZE_AT, size);
        size = self->is_small ? size : 0;
        memcpy(block + HEAD, size > 0 ? PyBytes_AS_STRING(stream) : "", size);
        self->used = self->gives_all ? (size_t)self->count * BLOCK : HEAD + size;
    }
    return true;
}

/* Returns where the blocks that this rank sends begin. */
static uint8_t *
own_blocks(exchange *self)
{
    return self->views[self->gives_all ? 0 : self->index].data;
}

/* Writes the blocks that Python makes of Messages. */
static int
put_messages(exchange *self, Py_ssize_t count)
{
    size_t room = self->gives_all ? (size_t)self->count * BLOCK : BLOCK;
    PyObject *blocks =
        PyObject_CallMethod((PyObject *)self->call, "block", "On", self->given, count);

    if (blocks == NULL) {
        return -1;
    }
    if (!PyBytes_Check(blocks) || (size_t)PyBytes_GET_SIZE(blocks) > room) {
        PyErr_SetString(PyExc_TypeError, "block() must return the bytes of blocks");
        Py_DECREF(blocks);
        return -1;
    }
    self->is_small = false;
    self->used = (size_t)PyBytes_GET_SIZE(blocks);
    memset(own_blocks(self), 0, room);
    memcpy(own_blocks(self), PyBytes_AS_STRING(blocks), self->used);
    Py_DECREF(blocks);
    return 0;
}

/* Fills the blocks that this rank sends: of `message`, unless it is NULL, or of what it
 * gives. */
static int
fill_blocks(exchange *self, PyObject *value, Py_ssize_t count, PyObject *message)
{
    self->given = Py_XNewRef(message);
    if ((message == NULL && self->gives && pack_all(self, value) < 0)
        || (!put_streams(self, count) && put_messages(self, count) < 0)) {
        return -1;
    }
    memcpy(self->own, self->views[self->index].data, HEAD);
    if (self->core.op == DL_RECV) {
        /* A message may be shorter than the block. */
        memset(self->memory, 0, BLOCK);
    }
    return 0;
}

/* Returns 0, or -1 with an exception set. */
static int
run_exchange(exchange *self)
{
    bool is_message = self->core.op == DL_SEND || self->core.op == DL_RECV;
    dl_deadline deadline = dl_group_deadline(self->group);
    dl_message_end end = {0};
    dl_status status;
    dlpy_gil gil;

    self->core.tensor = self->views[self->index];
    self->core.has_objects = !is_message;
    if (is_message) {
        self->core.peer = self->call->root;
        self->core.tag = DL_OBJECT_TAG;
        self->core.tensor.count = self->core.op == DL_SEND ? self->used : BLOCK;
    } else {
        self->core.root = self->call->root;
    }
    self->core.inputs = self->gives_all ? self->views : NULL;
    self->core.outputs = self->takes_all ? self->views : NULL;
    dlpy_recorded_site_enter(self->state);
    dlpy_gil_leave(&gil, is_message ? dl_group_are_brief(self->group, &self->core, 1)
                                    : dl_group_is_brief(self->group, &self->core));
    status = is_message ? dl_group_exchange(self->group, &self->core, deadline, &end)
                        : dl_group_run(self->group, &self->core, deadline);
    self->is_over = status == DL_OK;
    status = dlpy_gil_return(&gil, status);
    if (status == DL_OK) {
        return 0;
    }
    dlpy_raise_collective(self->state, status);
    if (dl_backend_take_kept_memory() || end.keeps_memory) {
        self->is_near = true; /* the memory is never freed */
    }
    return -1;
}

/* Moves the blocks in a group that is written in Python. */
static int
run_in_python(exchange *self)
{
    PyObject *found = PyObject_CallMethod((PyObject *)self->call, "move", "y#",
                                          own_blocks(self), (Py_ssize_t)self->used);

    if (found == NULL) {
        return -1;
    }
    int first = self->gives_all ? self->index : 0;
    size_t room = (size_t)(self->count - first) * BLOCK;
    bool has_room = PyBytes_Check(found) && (size_t)PyBytes_GET_SIZE(found) <= room;
    if (has_room) {
        memcpy(self->views[first].data, PyBytes_AS_STRING(found),
               (size_t)PyBytes_GET_SIZE(found));
    } else {
        PyErr_SetString(PyExc_TypeError, "move() must return the bytes of blocks");
    }
    Py_DECREF(found);
    self->is_over = has_room;
    return has_room ? 0 : -1;
}

/* Returns the number of blocks that were received, the first of which is `*first`. */
static int
received_count(const exchange *self, int *first)
{
    *first = self->gives_all ? self->index : 0;
    return self->core.op == DL_SEND ? 0 : self->gives_all ? 1 : self->count;
}

/* Returns whether the ranks of the blocks and this one take part in the same way, and
 * all streams are in the blocks. */
static bool
is_complete(const exchange *self)
{
    bool is_list = self->core.op == DL_BROADCAST || self->core.op == DL_RECV;
    size_t alike = is_list ? SIZE_AT : COUNT_AT;
    bool is_complete = (self->own[KIND_AT] & FAILED) == 0 && self->is_small;
    int first;
    int count = received_count(self, &first);

    for (int i = first; is_complete && i < first + count; i++) {
        is_complete = memcmp(self->views[i].data, self->own, alike) == 0
                      && number_at(self, i, SIZE_AT) <= ROOM
                      && number_at(self, i, PARTS_AT) == 0;
    }
    return is_complete;
}

static PyObject *
load_object(const exchange *self, int index, int source)
{
    PyObject *call = (PyObject *)self->call;
    const uint8_t *block = self->views[index].data;
    dl_bytes stream = {block + HEAD, (size_t)number_at(self, index, SIZE_AT)};
    bool is_pickle = (self->call->kind & SAFE) == 0 && stream.data[0] == PICKLE;
    PyObject *value = is_pickle ? NULL : dlpy_data_decode(stream);

    if (value != NULL) {
        return value;
    }
    PyObject *bytes = dlpy_object_from(stream);
    value = bytes == NULL ? NULL
            : is_pickle   ? PyObject_CallOneArg(self->state->pickle_loads, bytes)
                          : PyObject_CallMethod(call, "load", "O", bytes);
    PyObject *error = value == NULL ? take_error() : NULL;

    Py_XDECREF(bytes);
    if (error != NULL) {
        value = PyObject_CallMethod(call, "cannot_load", "iN", source, error);
    }
    return value;
}

/* Returns a list of the objects that are for this rank, or of the blocks. */
static PyObject *
take_objects(const exchange *self, bool loads)
{
    bool is_taker =
        !loads || self->takes_all || self->core.op == DL_SCATTER || !self->gives;
    int first;
    int count = received_count(self, &first);
    PyObject *all = PyList_New(0);

    for (int i = 0; all != NULL && is_taker && i < count; i++) {
        dl_bytes block = {self->views[first + i].data, BLOCK};
        int source = self->takes_all ? i : self->call->root;
        PyObject *one =
            loads ? load_object(self, first + i, source) : dlpy_object_from(block);
        if (dlpy_append(all, one) < 0) {
            Py_CLEAR(all);
        }
    }
    return all;
}

/* Returns what take_objects() does, with what this rank has sent if the rest follows.  A
 * signal that has arrived meanwhile is raised here rather than in Python, which could
 * not tell how far the call got. */
static PyObject *
take_results(const exchange *self)
{
    bool loads = is_complete(self);
    PyObject *sent = self->given != NULL ? self->given : Py_None;
    PyObject *all =
        !loads && PyErr_CheckSignals() < 0 ? NULL : take_objects(self, loads);

    return loads || all == NULL ? all : Py_BuildValue("ON", sent, all);
}

/* Ends the group after a failure, as its ranks may be waiting for the rest of this
 * call, or have sent it. */
static void
abort_group(const exchange *self)
{
    PyObject *error = dlpy_error_take();
    PyObject *done = PyObject_CallMethod(self->call->group, "abort", NULL);
    if (done == NULL) {
        PyErr_WriteUnraisable(self->call->group);
    }
    Py_XDECREF(done);
    dlpy_error_restore(error);
}

/* Finds pickle's functions, which programs without objects need not import. */
static int
find_pickle(dlpy_state *state)
{
    if (DLPY_LOAD(state->pickle_words) != NULL) {
        return 0;
    }
    PyObject *pickle = PyImport_ImportModule("_pickle");
    PyObject *dumps = pickle ? PyObject_GetAttrString(pickle, "dumps") : NULL;
    PyObject *loads = dumps ? PyObject_GetAttrString(pickle, "loads") : NULL;
    PyObject *words = loads ? Py_BuildValue("(s)", "buffer_callback") : NULL;

    if (words != NULL) {
        dlpy_state_set(&state->pickle_dumps, dumps);
        dlpy_state_set(&state->pickle_loads, loads);
        dlpy_state_set(&state->pickle_words, words); /* last: others look for it */
    }
    Py_XDECREF(pickle);
    Py_XDECREF(dumps);
    Py_XDECREF(loads);
    Py_XDECREF(words);
    return words == NULL ? -1 : 0;
}

static int
check_call(const dlpy_state *state, const dlpy_object_call *self)
{
    if (self->group == NULL || !dlpy_group_check(state, self->group) || self->op < 0
        || self->op >= (int)(sizeof operations / sizeof *operations)) {
        PyErr_SetString(PyExc_TypeError, "not a call of a group");
        return -1;
    }
    return 0;
}

PyObject *
dlpy_object_call_exchange(dlpy_state *state, dlpy_object_call *call, PyObject *value,
                          Py_ssize_t count, PyObject *message)
{
    exchange self; /* what is near needs no initial values */
    PyObject *result = NULL;

    if (check_call(state, call) < 0 || find_pickle(state) < 0) {
        return NULL;
    }
    if (call->refusal != NULL && call->refusal != Py_None) {
        message = call->refusal;
    }
    bool in_python = call->in_python || ((dlpy_group *)call->group)->is_custom;
    self.state = state;
    self.call = call;
    self.group = dlpy_group_core(call->group);
    self.core = (dl_call){.op = operations[call->op]};
    self.given = NULL;
    self.is_over = false;
    if (make_blocks(&self) == 0 && fill_blocks(&self, value, count, message) == 0
        && (in_python ? run_in_python(&self) : run_exchange(&self)) == 0) {
        result = take_results(&self);
    }
    if (result == NULL && self.is_over && !is_complete(&self)) {
        abort_group(&self);
    }
    free_blocks(&self);
    return result;
}

static PyObject *
exchange_objects(PyObject *object, PyTypeObject *type, PyObject *const *args,
                 Py_ssize_t count, PyObject *Py_UNUSED(keywords))
{
    Py_ssize_t length = count == 3 ? PyLong_AsSsize_t(args[1]) : -1;

    if (count != 3 || (length == -1 && PyErr_Occurred())) {
        return count == 3
                   ? NULL
                   : PyErr_Format(PyExc_TypeError, "exchange() takes three arguments");
    }
    return dlpy_object_call_exchange(dlpy_state_of_class(type),
                                     (dlpy_object_call *)object, args[0], length,
                                     args[2] == Py_None ? NULL : args[2]);
}

static int
call_traverse(PyObject *object, visitproc visit, void *arg)
{
    dlpy_object_call *self = (dlpy_object_call *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->group);
    Py_VISIT(self->name);
    Py_VISIT(self->refusal);
    return 0;
}

static int
call_clear(PyObject *object)
{
    dlpy_object_call *self = (dlpy_object_call *)object;

    Py_CLEAR(self->group);
    Py_CLEAR(self->name);
    Py_CLEAR(self->refusal);
    return 0;
}

static void
call_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    (void)call_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

#define METHOD(name, function, documentation)       \
    {name, (PyCFunction)(void (*)(void))(function), \
     METH_METHOD | METH_FASTCALL | METH_KEYWORDS, documentation}

static PyMethodDef call_methods[] = {
    METHOD("exchange", exchange_objects, DLPY_DOC__OBJECTCALL_EXCHANGE),
    METHOD("keep", dlpy_object_call_keep, DLPY_DOC__OBJECTCALL_KEEP),
    {0},
};

static PyMemberDef call_members[] = {
    {"group", T_OBJECT_EX, offsetof(dlpy_object_call, group), 0, NULL},
    {"name", T_OBJECT_EX, offsetof(dlpy_object_call, name), 0, NULL},
    {"refusal", T_OBJECT, offsetof(dlpy_object_call, refusal), 0, NULL},
    {"op", T_INT, offsetof(dlpy_object_call, op), 0, NULL},
    {"rank", T_INT, offsetof(dlpy_object_call, rank), 0, NULL},
    {"root", T_INT, offsetof(dlpy_object_call, root), 0, NULL},
    {"size", T_INT, offsetof(dlpy_object_call, size), 0, NULL},
    {"kind", T_INT, offsetof(dlpy_object_call, kind), 0, NULL},
    {"in_python", T_BOOL, offsetof(dlpy_object_call, in_python), 0, NULL},
    {0},
};

static PyType_Slot call_slots[] = {
    {Py_tp_doc, DLPY_DOC__OBJECTCALL},
    {Py_tp_traverse, call_traverse},
    {Py_tp_clear, call_clear},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_methods, call_methods},
    {Py_tp_members, call_members},
    {0, NULL},
};

static PyType_Spec call_spec = {
    .name = "distlite._C._ObjectCall",
    .basicsize = sizeof(dlpy_object_call),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = call_slots,
};

static const dlpy_number numbers[] = {
    {"_OBJECT_ROOM", ROOM}, {"_OBJECT_PART_LEAST", PART_LEAST}, {0}};

const dlpy_part dlpy_object_calls = {.type = &call_spec, .numbers = numbers};
