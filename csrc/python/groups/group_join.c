/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Meeting the other members of a group: the arguments of ProcessGroup with a backend, and
 * a failure to make the group that the others are told. */
#include "python/groups/group_type.h"

#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"
#include "python/stores/store_types.h"

enum {
    STORE,
    RANK,
    SIZE,
    TIMEOUT,
    GROUP_NAME,
    GROUP_DESC,
    BACKEND,
    PARENT,
    RANKS,
    IS_SUCCESSOR,
    IS_VACANT,
    ARGUMENT_COUNT,
};

static const dlpy_signature new_signature = {
    .function = "ProcessGroup",
    .required = 3,
    .names = {"store", "rank", "size", "timeout", "group_name", "group_desc", "backend",
              "parent", "ranks", "is_successor", "is_vacant"},
};

static int
options_from(PyObject *const *values, dl_group_options *options)
{
    if (dlpy_rank_from(values[RANK], "rank", &options->rank) < 0
        || dlpy_rank_from(values[SIZE], "size", &options->size) < 0
        || dlpy_timeout_from(values[TIMEOUT], DLPY_GROUP_TIMEOUT, &options->timeout) < 0
        || (values[GROUP_NAME] != NULL
            && dlpy_name_from(values[GROUP_NAME], "group_name", &options->name) < 0)
        || (values[BACKEND] != NULL
            && dlpy_name_from(values[BACKEND], "backend", &options->backend) < 0)
        || (values[IS_SUCCESSOR] != NULL
            && dlpy_bool_from(values[IS_SUCCESSOR], "is_successor",
                              &options->is_successor)
                   < 0)
        || (values[IS_VACANT] != NULL
            && dlpy_bool_from(values[IS_VACANT], "is_vacant", &options->is_vacant)
                   < 0)) {
        return -1;
    }
    return 0;
}

/* Reads the parent of a group that is created from another; the caller frees
 * `*ranks`. */
static int
parent_from(const dlpy_state *state, PyObject *const *values, dl_group_options *options,
            int **ranks)
{
    PyObject *parent = values[PARENT];

    if (parent == NULL || parent == Py_None) {
        return 0;
    }
    if (!dlpy_group_check(state, parent) || values[RANKS] == NULL) {
        PyErr_SetString(PyExc_TypeError,
                        "parent must be a ProcessGroup, and ranks its members");
        return -1;
    }
    int count;
    if (dlpy_ranks_from(values[RANKS], "ranks", ranks, &count) < 0) {
        return -1;
    }
    if (count != options->size) {
        PyErr_Format(PyExc_ValueError,
                     "a group of %d needs a list of that many ranks, not %d",
                     options->size, count);
        return -1;
    }
    options->parent = dlpy_group_core(parent);
    options->parent_ranks = *ranks;
    return 0;
}

static PyObject *
description_from(PyObject *object)
{
    if (object == NULL || object == Py_None) {
        return PyUnicode_FromString("undefined");
    }
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "group_desc must be str, not %s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    return Py_NewRef(object);
}

/* Forming a group can fail like a store operation or like a collective. */
static void
raise_status(const dlpy_state *state, dl_status status)
{
    bool is_collective = status == DL_PEER_LOST || status == DL_MISMATCH
                         || status == DL_BACKEND || status == DL_CANCELLED;

    if (is_collective) {
        dlpy_raise_collective(state, status);
    } else {
        dlpy_raise_store(state, status);
    }
}

/* Tells the members why this rank cannot join: members that do not meet have no other
 * way to learn it. */
static void
refuse_group(const dl_group_options *options, const char *reason)
{
    (void)dl_fail(DL_NO_MEMORY, "%.1800s", reason);
    Py_BEGIN_ALLOW_THREADS
    dl_group_refuse(options, NULL);
    Py_END_ALLOW_THREADS
}

static void
describe_joining(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    const dl_group_options *options = subject;

    snprintf(text, DL_WAIT_ROW_TEXT, "joining group %.48s as rank %d of %d",
             options->name, options->rank, options->size);
}

/* The core gets a store reference of its own: a store written in Python lives only as
 * long as Python code or this reference holds it. */
static int
join_over(dlpy_state *state, PyObject *store, const dl_group_options *options,
          dl_group **group)
{
    dl_waiting waiting;
    dl_store *shared;
    dl_status status;

    if (!dlpy_store_check(state, store)) {
        PyErr_Format(PyExc_TypeError, "store must be a distlite.Store, not %s",
                     Py_TYPE(store)->tp_name);
        return -1;
    }
    shared = dlpy_store_share(state, store);
    if (shared == NULL) {
        if (options->parent != NULL) {
            refuse_group(options, "out of memory");
        }
        return -1;
    }
    dlpy_waiting_enter(state, &waiting, describe_joining, options,
                       dl_deadline_after(options->timeout));
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_new(options, shared, group);
    dl_store_unref(shared);
    Py_END_ALLOW_THREADS
    dl_waiting_end(&waiting);
    if (status != DL_OK) {
        raise_status(state, status);
        return -1;
    }
    return 0;
}

int
dlpy_group_join(dlpy_state *state, PyObject *args, PyObject *keywords, dlpy_group *self)
{
    PyObject *values[ARGUMENT_COUNT];
    dl_group_options options = {.name = "0", .backend = "cpu"};
    int *ranks = NULL;

    if (dlpy_take_init_arguments(&new_signature, args, keywords, values) < 0
        || options_from(values, &options) < 0
        || parent_from(state, values, &options, &ranks) < 0) {
        PyMem_Free(ranks);
        return -1;
    }
    self->description = description_from(values[GROUP_DESC]);
    self->store = Py_NewRef(values[STORE]);
    int result = self->description == NULL
                     ? -1
                     : join_over(state, self->store, &options, &self->group);
    PyMem_Free(ranks);
    return result;
}

static PyObject *
group_refuse(PyObject *module, PyObject *const *values)
{
    const dlpy_state *state = dlpy_state_of_module(module);
    dl_group_options options = {0};
    const char *reason;
    int *ranks = NULL;

    if (dlpy_rank_from(values[2], "rank", &options.rank) < 0
        || dlpy_name_from(values[3], "name", &options.name) < 0
        || dlpy_name_from(values[4], "backend", &options.backend) < 0
        || dlpy_name_from(values[5], "reason", &reason) < 0) {
        return NULL;
    }
    options.parent = dlpy_group_from(state, values[0], "parent");
    if (options.parent == NULL
        || dlpy_ranks_from(values[1], "ranks", &ranks, &options.size) < 0) {
        return NULL;
    }
    if (options.rank < 0 || options.rank >= options.size) {
        PyMem_Free(ranks);
        PyErr_SetString(PyExc_ValueError, "rank must be an index of ranks");
        return NULL;
    }
    options.parent_ranks = ranks;
    refuse_group(&options, reason);
    PyMem_Free(ranks);
    Py_RETURN_NONE;
}

DLPY_PARSED(group_refuse, "_group_refuse", 6, "parent", "ranks", "rank", "name",
            "backend", "reason")

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_group_refuse", group_refuse_call, DLPY_DOC__GROUP_REFUSE),
    {0},
};

const dlpy_part dlpy_group_joining = {.functions = functions};
