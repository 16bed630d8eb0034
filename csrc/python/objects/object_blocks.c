/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The first step of collectives of objects: each rank sends all others a block, which is
 * a header, and behind it the object's stream of bytes if that has room, so that small
 * objects need one exchange only.  object_call.py makes and reads headers, whose numbers
 * are little-endian. */
#include <string.h>

#include "python/groups/group_type.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"

/* Of a header in bytes, and where its numbers of 64 bits are. */
#define HEAD 32
#define COUNT_AT 8
#define SIZE_AT 16
#define PARTS_AT 24

/* A bit of the byte at offset 4: the rank cannot take part. */
#define KIND_AT 4
#define FAILED 2

/* The bytes for a stream: sending as many costs about as much as sending none.  A
 * scatter's source also has some for what it says of each rank. */
#define ROOM 480
#define ENTRY 16

/* Blocks of so many bytes and ranks are on the stack: allocating memory takes as long as
 * the exchange. */
#define NEAR_SIZE 4096
#define NEAR_RANKS 16

/* One call.  The blocks of all ranks are one behind the other. */
typedef struct exchange {
    dl_group *group;
    dl_call call;
    uint8_t *memory;
    dl_tensor *views; /* by rank */
    uint8_t near[NEAR_SIZE];
    dl_tensor near_views[NEAR_RANKS];
} exchange;

static const dl_op_type operations[] = {DL_BROADCAST_OBJECTS, DL_ALL_GATHER_OBJECTS,
                                        DL_GATHER_OBJECTS, DL_SCATTER_OBJECTS};

/* Returns the bytes behind the header of a rank, which all ranks know. */
static size_t
room_of(const exchange *self, int rank)
{
    if (self->call.op == DL_ALL_GATHER_OBJECTS || self->call.op == DL_GATHER_OBJECTS) {
        return ROOM;
    }
    bool is_scatter = self->call.op == DL_SCATTER_OBJECTS;
    size_t entries = is_scatter ? ENTRY * (size_t)dl_group_size(self->group) : 0;
    return rank == self->call.root ? ROOM + entries : 0;
}

/* Makes room for the blocks, and puts this rank's own into its place. */
static int
make_blocks(exchange *self, dl_bytes own)
{
    int count = dl_group_size(self->group);
    int rank = dl_group_rank(self->group);
    size_t size = 0;

    if (own.size < HEAD || own.size > HEAD + room_of(self, rank)) {
        PyErr_Format(PyExc_ValueError, "a block of %zu bytes", own.size);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        size += HEAD + room_of(self, i);
    }
    bool is_near = size <= NEAR_SIZE && count <= NEAR_RANKS;
    self->memory = is_near ? self->near : PyMem_Malloc(size);
    self->views = is_near ? self->near_views : PyMem_New(dl_tensor, (size_t)count);
    if (self->memory == NULL || self->views == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint8_t *at = self->memory;
    for (int i = 0; i < count; i++) {
        self->views[i] = (dl_tensor){
            .data = at,
            .count = HEAD + room_of(self, i),
            .item_size = 1,
            .dtype = DL_UINT8,
            .ndim = 1,
            .is_contiguous = true,
            .is_writable = true,
        };
        at += self->views[i].count;
    }
    self->call.tensor = self->views[rank];
    self->call.outputs = self->views;
    memcpy(self->views[rank].data, own.data, own.size);
    memset((uint8_t *)self->views[rank].data + own.size, 0,
           self->views[rank].count - own.size);
    return 0;
}

static dl_status
run_exchange(exchange *self)
{
    dlpy_gil gil;

    dlpy_gil_leave(&gil, false);
    dl_status status =
        dl_group_run(self->group, &self->call, dl_group_deadline(self->group));
    return dlpy_gil_return(&gil, status);
}

static uint64_t
number_at(const exchange *self, int rank, size_t offset)
{
    uint64_t number;

    memcpy(&number, (const uint8_t *)self->views[rank].data + offset, sizeof number);
    return number;
}

/* Returns whether all ranks take part in the same way, and all streams are in the
 * blocks. */
static bool
is_complete(const exchange *self)
{
    const uint8_t *own = self->call.tensor.data;
    size_t alike = self->call.op == DL_BROADCAST_OBJECTS ? SIZE_AT : COUNT_AT;
    bool is_complete = (own[KIND_AT] & FAILED) == 0;

    for (int i = 0; is_complete && i < dl_group_size(self->group); i++) {
        is_complete = memcmp(self->views[i].data, own, alike) == 0
                      && number_at(self, i, SIZE_AT) <= room_of(self, i)
                      && number_at(self, i, PARTS_AT) == 0;
    }
    return is_complete;
}

/* Returns what has come: all blocks, or only their streams. */
static PyObject *
take_all(const exchange *self, bool takes_streams)
{
    int count = dl_group_size(self->group);
    PyObject *all = PyList_New(count);

    for (int i = 0; all != NULL && i < count; i++) {
        dl_bytes taken = {self->views[i].data, self->views[i].count};
        if (takes_streams) {
            taken.data += HEAD;
            taken.size = (size_t)number_at(self, i, SIZE_AT);
        }
        PyObject *bytes = dlpy_object_from(taken);
        if (bytes == NULL) {
            Py_CLEAR(all);
        } else {
            PyList_SET_ITEM(all, i, bytes);
        }
    }
    return all;
}

static PyObject *
finish_exchange(exchange *self, dl_bytes own, dlpy_state *state)
{
    PyObject *result = NULL;

    if (make_blocks(self, own) == 0) {
        dlpy_recorded_site_enter(state);
        dl_status status = run_exchange(self);
        bool has_all = status == DL_OK && is_complete(self);
        result = status != DL_OK ? dlpy_raise_collective(state, status)
                                 : Py_BuildValue("NN", PyBool_FromLong(has_all),
                                                 take_all(self, has_all));
    }
    if (self->memory != self->near) {
        PyMem_Free(self->memory);
        PyMem_Free(self->views);
    }
    return result;
}

static PyObject *
exchange_blocks(PyObject *module, PyObject *const *args, Py_ssize_t count,
                PyObject *keywords)
{
    static const dlpy_signature signature = {
        "_exchange_blocks", 4, {"group", "op", "root", "block"}};
    dlpy_state *state = dlpy_state_of_module(module);
    PyObject *values[4];
    exchange self; /* what is near needs no initial values */
    int op;

    self.call = (dl_call){0};
    self.memory = NULL;
    self.views = NULL;
    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_int_from(values[1], "op", &op) < 0
        || dlpy_int_from(values[2], "root", &self.call.root) < 0) {
        return NULL;
    }
    PyObject *group = values[0];
    if (!dlpy_group_check(state, group) || !PyBytes_Check(values[3])) {
        PyErr_SetString(PyExc_TypeError, "group must be a ProcessGroup, block bytes");
        return NULL;
    }
    if (op < 0 || op >= (int)(sizeof operations / sizeof *operations)) {
        PyErr_SetString(PyExc_ValueError, "no such exchange of blocks");
        return NULL;
    }
    if (((dlpy_group *)group)->is_custom) {
        PyErr_SetString(PyExc_NotImplementedError, "a group written in Python");
        return NULL;
    }
    self.call.op = operations[op];
    self.group = dlpy_group_core(group);
    dl_bytes own = {(const uint8_t *)PyBytes_AS_STRING(values[3]),
                    (size_t)PyBytes_GET_SIZE(values[3])};
    return finish_exchange(&self, own, state);
}

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_exchange_blocks", exchange_blocks, DLPY_DOC__EXCHANGE_BLOCKS),
    {0},
};

int
dlpy_add_object_blocks(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "_OBJECT_ROOM", ROOM) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
