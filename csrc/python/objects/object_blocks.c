/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The first step of collectives of objects, on blocks of one size: a header, and behind
 * it the object's stream of bytes if that has room, so that small objects need one
 * operation only, in which a rank waits only for those that have an object for it.
 * object_call.py makes and reads headers, whose numbers are little-endian. */
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

/* The bytes for a stream: sending as many costs about as much as sending none. */
#define ROOM 480
#define BLOCK (HEAD + ROOM)

/* Blocks of so many ranks are on the stack: allocating memory takes as long as the
 * exchange. */
#define NEAR 8

/* One call.  The blocks of all ranks are one behind the other. */
typedef struct exchange {
    dl_group *group;
    dl_call call;
    const uint8_t *own; /* header */
    int count;          /* of the blocks that this rank holds: of all ranks, or one */
    int index;          /* of its own block among them */
    uint8_t *memory;
    dl_tensor *views;
    dl_tensor near_views[NEAR];
    uint8_t near[NEAR * BLOCK];
} exchange;

static const dl_op_type operations[] = {DL_BROADCAST, DL_ALL_GATHER, DL_GATHER,
                                        DL_SCATTER};

static bool
gives_all(const exchange *self)
{
    return self->call.op == DL_SCATTER && dl_group_rank(self->group) == self->call.root;
}

/* Makes room for the blocks, and puts those that are given into their places: this
 * rank's own, or those for all ranks. */
static int
make_blocks(exchange *self, dl_bytes given)
{
    int rank = dl_group_rank(self->group);
    bool is_root = rank == self->call.root && self->call.op != DL_BROADCAST;
    bool has_all = is_root || self->call.op == DL_ALL_GATHER;
    self->count = has_all ? dl_group_size(self->group) : 1;
    self->index = has_all ? rank : 0;
    size_t size = (size_t)self->count * BLOCK;
    size_t start = gives_all(self) ? 0 : (size_t)self->index * BLOCK;
    size_t room = gives_all(self) ? size : BLOCK;

    if (given.size > room || given.size < HEAD + room - BLOCK) {
        PyErr_Format(PyExc_ValueError, "blocks of %zu bytes", given.size);
        return -1;
    }
    bool is_near = self->count <= NEAR;
    self->memory = is_near ? self->near : PyMem_Malloc(size);
    self->views =
        is_near ? self->near_views : PyMem_New(dl_tensor, (size_t)self->count);
    if (self->memory == NULL || self->views == NULL) {
        PyErr_NoMemory();
        return -1;
    }
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
    /* The backend that moves nothing leaves the others' as they are. */
    memset(self->memory, 0, size);
    memcpy(self->memory + start, given.data, given.size);
    self->own = given.data + (gives_all(self) ? (size_t)rank * BLOCK : 0);
    self->call.has_objects = true;
    self->call.tensor = self->views[self->index];
    self->call.inputs = gives_all(self) ? self->views : NULL;
    self->call.outputs = has_all && !gives_all(self) ? self->views : NULL;
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
number_at(const exchange *self, int index, size_t offset)
{
    uint64_t number;

    memcpy(&number, (const uint8_t *)self->views[index].data + offset, sizeof number);
    return number;
}

/* Returns whether the ranks of these blocks and this one take part in the same way, and
 * all streams are in the blocks. */
static bool
is_complete(const exchange *self)
{
    size_t alike = self->call.op == DL_BROADCAST ? SIZE_AT : COUNT_AT;
    bool is_complete = (self->own[KIND_AT] & FAILED) == 0;

    for (int i = 0; is_complete && i < self->count; i++) {
        is_complete = memcmp(self->views[i].data, self->own, alike) == 0
                      && number_at(self, i, SIZE_AT) <= ROOM
                      && number_at(self, i, PARTS_AT) == 0;
    }
    return is_complete;
}

/* Returns the blocks that are for this rank, or only their streams. */
static PyObject *
take_all(const exchange *self, bool takes_streams)
{
    int first = gives_all(self) ? self->index : 0;
    int count = gives_all(self) ? 1 : self->count;
    PyObject *all = PyList_New(count);

    for (int i = 0; all != NULL && i < count; i++) {
        dl_bytes taken = {self->views[first + i].data, BLOCK};
        if (takes_streams) {
            taken.data += HEAD;
            taken.size = (size_t)number_at(self, first + i, SIZE_AT);
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
finish_exchange(exchange *self, dl_bytes given, dlpy_state *state)
{
    PyObject *result = NULL;

    if (make_blocks(self, given) == 0) {
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
