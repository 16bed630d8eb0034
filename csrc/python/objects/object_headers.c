/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The first step of collectives of objects: each rank sends all others a header that
 * describes its object.  Small objects are part of the header, so they need one
 * exchange only.  The format of headers is known to object_headers.py alone. */
#include <string.h>

#include "python/groups/group_type.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"

/* Up to this many ranks the views are on the stack: allocating memory takes as long as
 * the exchange. */
#define FEW_RANKS 16

/* One call.  The blocks are the contents of `headers`, which are written to while no
 * other code has a reference to them. */
typedef struct exchange {
    dl_group *group;
    dl_call call;
    PyObject *headers; /* list of bytes objects, by rank */
    dl_tensor few[FEW_RANKS];
    dl_tensor *views; /* `few`, or allocated memory */
} exchange;

/* Sizes in bytes. */
typedef struct limits {
    int64_t sizes[2]; /* of the other ranks' headers, of the root's header */
    int64_t head;
} limits;

static const dl_op_type operations[] = {DL_BROADCAST_OBJECTS, DL_ALL_GATHER_OBJECTS,
                                        DL_GATHER_OBJECTS, DL_SCATTER_OBJECTS};

static dl_tensor
view_of(PyObject *header)
{
    return (dl_tensor){
        .data = PyBytes_AS_STRING(header),
        .count = (size_t)PyBytes_GET_SIZE(header),
        .item_size = 1,
        .dtype = DL_UINT8,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
}

/* Allocates the block of one rank.  This rank's own block is its header, padded with
 * zeros. */
static int
make_header(exchange *self, int rank, dl_bytes own, int64_t size)
{
    PyObject *header = PyBytes_FromStringAndSize(NULL, size);

    if (header == NULL) {
        return -1;
    }
    PyList_SET_ITEM(self->headers, rank, header);
    self->views[rank] = view_of(header);
    if (rank == dl_group_rank(self->group)) {
        char *block = PyBytes_AS_STRING(header);
        memcpy(block, own.data, own.size);
        memset(block + own.size, 0, (size_t)size - own.size);
        self->call.tensor = self->views[rank];
    }
    return 0;
}

static int
make_headers(exchange *self, dl_bytes own, const int64_t sizes[2])
{
    int count = dl_group_size(self->group);
    int root = self->call.root;
    bool is_root = root < 0 || root == dl_group_rank(self->group);

    if (own.size > (size_t)sizes[is_root]) {
        PyErr_Format(PyExc_ValueError, "a header of %zu bytes, more than %zd", own.size,
                     sizes[is_root]);
        return -1;
    }
    self->headers = PyList_New(count);
    self->views = count <= FEW_RANKS ? self->few : PyMem_New(dl_tensor, (size_t)count);
    if (self->headers == NULL || self->views == NULL) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    self->call.outputs = self->views;
    for (int rank = 0; rank < count; rank++) {
        if (make_header(self, rank, own, sizes[root < 0 || root == rank]) < 0) {
            return -1;
        }
    }
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

/* Returns whether all headers begin with the same `head` bytes, as those of ranks
 * without an error do. */
static bool
are_alike(const exchange *self, int64_t head)
{
    const void *own = self->call.tensor.data;
    bool is_alike = true;

    for (int i = 0; is_alike && i < dl_group_size(self->group); i++) {
        is_alike = memcmp(self->views[i].data, own, (size_t)head) == 0;
    }
    return is_alike;
}

static PyObject *
finish_exchange(exchange *self, dl_bytes own, const limits *limits, dlpy_state *state)
{
    PyObject *result = NULL;

    if (make_headers(self, own, limits->sizes) == 0) {
        dlpy_recorded_site_enter(state);
        dl_status status = run_exchange(self);
        result =
            status == DL_OK
                ? PyTuple_Pack(2, are_alike(self, limits->head) ? Py_True : Py_False,
                               self->headers)
                : dlpy_raise_collective(state, status);
    }
    Py_XDECREF(self->headers);
    if (self->views != self->few) {
        PyMem_Free(self->views);
    }
    return result;
}

static PyObject *
exchange_headers(PyObject *module, PyObject *const *args, Py_ssize_t count,
                 PyObject *keywords)
{
    static const dlpy_signature signature = {
        "_exchange_headers",
        7,
        {"group", "op", "root", "header", "size", "root_size", "head"}};
    dlpy_state *state = dlpy_state_of_module(module);
    PyObject *values[7];
    exchange self; /* `few` needs no initial values */
    int op;
    limits limits;

    self.call = (dl_call){0};
    self.headers = NULL;
    self.views = NULL;
    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values) < 0
        || dlpy_int_from(values[1], "op", &op) < 0
        || dlpy_int_from(values[2], "root", &self.call.root) < 0
        || dlpy_int64_from(values[4], "size", &limits.sizes[0]) < 0
        || dlpy_int64_from(values[5], "root_size", &limits.sizes[1]) < 0
        || dlpy_int64_from(values[6], "head", &limits.head) < 0) {
        return NULL;
    }
    PyObject *group = values[0];
    if (!dlpy_group_check(state, group) || !PyBytes_Check(values[3])) {
        PyErr_SetString(PyExc_TypeError, "group must be a ProcessGroup, header bytes");
        return NULL;
    }
    /* bytes objects of at most one byte may be shared by the interpreter. */
    bool is_possible = limits.head > 1 && limits.sizes[0] >= limits.head
                       && limits.sizes[1] >= limits.head;
    if (op < 0 || op >= (int)(sizeof operations / sizeof *operations) || !is_possible) {
        PyErr_SetString(PyExc_ValueError, "no such exchange of headers");
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
    return finish_exchange(&self, own, &limits, state);
}

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_exchange_headers", exchange_headers, DLPY_DOC__EXCHANGE_HEADERS),
    {0},
};

int
dlpy_add_object_headers(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
