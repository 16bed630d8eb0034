/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <string.h>

#include "pg/device/device.h"
#include "python/arrays/cuda_arg.h"
#include "python/groups/collective_call.h"
#include "python/groups/group_type.h"
#include "python/groups/library_functions.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"

/* How long operations in progress may keep others from following from their group. */
#define DRAIN_PATIENCE (500 * DL_MILLISECOND)

static dl_group *
group_from(PyObject *module, PyObject *object)
{
    return dlpy_group_from(dlpy_state_of_module(module), object, "group");
}

/* Converts one number of the options tuple; None means unset. */
static int
option_from(PyObject *tuple, Py_ssize_t index, int *option)
{
    PyObject *item = PyTuple_GET_ITEM(tuple, index);
    int64_t wide;

    *option = DL_OPTION_UNSET;
    if (item == Py_None) {
        return 0;
    }
    if (dlpy_int64_from(item, "an option", &wide) < 0) {
        return -1;
    }
    if (wide <= INT_MIN || wide > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "%R does not fit into an option", item);
        return -1;
    }
    *option = (int)wide;
    return 0;
}

static int
text_option_from(PyObject *item, char *text, size_t size)
{
    const char *given = item == Py_None ? "" : PyUnicode_AsUTF8(item);

    if (given == NULL) {
        return -1;
    }
    if (strlen(given) >= size) {
        PyErr_Format(PyExc_ValueError, "%R is longer than %zu bytes", item, size - 1);
        return -1;
    }
    strcpy(text, given);
    return 0;
}

/* The tuple is in the order of the fields of distlite.groups.nccl's options. */
static int
options_from(PyObject *tuple, dl_device_options *options)
{
    int *const numbers[] = {
        &options->blocking,       &options->cga_cluster_size, &options->min_ctas,
        &options->max_ctas,       &options->split_share,      &options->traffic_class,
        &options->collnet_enable, &options->cta_policy,       &options->shrink_share,
        &options->nvls_ctas,
    };
    Py_ssize_t count = (Py_ssize_t)(sizeof numbers / sizeof *numbers);

    *options = (dl_device_options){.is_given = true};
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count + 3) {
        PyErr_Format(PyExc_TypeError, "options must be a tuple of %zd", count + 3);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (option_from(tuple, i, numbers[i]) < 0) {
            return -1;
        }
    }
    if (text_option_from(PyTuple_GET_ITEM(tuple, count), options->net_name,
                         sizeof options->net_name)
            < 0
        || text_option_from(PyTuple_GET_ITEM(tuple, count + 1), options->comm_name,
                            sizeof options->comm_name)
               < 0) {
        return -1;
    }
    int is_high = PyObject_IsTrue(PyTuple_GET_ITEM(tuple, count + 2));
    options->is_high_priority_stream = is_high > 0;
    return is_high < 0 ? -1 : 0;
}

/* Called at most once per group, before any other thread uses the group. */
static PyObject *
device_serve(PyObject *module, PyObject *const *values)
{
    dl_device_options options = {0};
    const char *name;
    bool takes_barriers;

    if (dlpy_name_from(values[1], "name", &name) < 0
        || dlpy_bool_from(values[3], "takes_barriers", &takes_barriers) < 0) {
        return NULL;
    }
    dl_group *group = group_from(module, values[0]);
    if (group == NULL || dlpy_set_library_roots() < 0
        || (values[2] != Py_None && options_from(values[2], &options) < 0)) {
        return NULL;
    }
    dl_status status = dl_device_serve(group, name, &options);
    if (status != DL_OK) {
        return dlpy_raise_collective(dlpy_state_of_module(module), status);
    }
    if (takes_barriers) {
        dl_device_take_barriers(group);
    }
    Py_RETURN_NONE;
}

DLPY_PARSED(device_serve, "_device_serve", 4, "group", "name", "options",
            "takes_barriers")

static PyObject *
device_connect(PyObject *module, PyObject *const *values)
{
    dl_status status;
    int index;

    if (dlpy_int_from(values[1], "index", &index) < 0) {
        return NULL;
    }
    dl_group *group = group_from(module, values[0]);
    if (group == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_device_connect(group, index, dl_group_deadline(group));
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        return dlpy_raise_collective(dlpy_state_of_module(module), status);
    }
    Py_RETURN_NONE;
}

DLPY_PARSED(device_connect, "_device_connect", 2, "group", "index")

static PyObject *
part_group(PyObject *module, dl_group *parent, const dl_device_split_args *wanted,
           dl_group *child)
{
    dl_group *limiting = wanted->way == DL_DEVICE_SPLIT ? parent : child;
    dl_status status;

    Py_BEGIN_ALLOW_THREADS
    status = dl_device_split(parent, wanted, dl_group_deadline(limiting), child);
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        return dlpy_raise_collective(dlpy_state_of_module(module), status);
    }
    Py_RETURN_NONE;
}

/* Collective over the parent group; `child` is None on a rank that joins no part. */
static PyObject *
device_split(PyObject *module, PyObject *const *values)
{
    dl_device_split_args wanted = {.way = DL_DEVICE_SPLIT};

    if (dlpy_int_from(values[1], "color", &wanted.color) < 0
        || dlpy_int_from(values[2], "key", &wanted.key) < 0) {
        return NULL;
    }
    dl_group *core = group_from(module, values[0]);
    dl_group *part_of = values[3] == Py_None ? NULL : group_from(module, values[3]);
    if (core == NULL || (values[3] != Py_None && part_of == NULL)) {
        return NULL;
    }
    return part_group(module, core, &wanted, part_of);
}

DLPY_PARSED(device_split, "_device_split", 4, "parent", "color", "key", "child")

/* Called only by the ranks that remain in the group. */
static PyObject *
device_shrink(PyObject *module, PyObject *const *values)
{
    dl_device_split_args wanted = {.way = DL_DEVICE_SHRINK};

    if (dlpy_int_from(values[2], "flags", &wanted.flags) < 0) {
        return NULL;
    }
    dl_group *core = group_from(module, values[0]);
    dl_group *rest = group_from(module, values[3]);
    int *ranks;
    if (core == NULL || rest == NULL
        || dlpy_ranks_from(values[1], "excluded", &ranks, &wanted.excluded_count) < 0) {
        return NULL;
    }
    wanted.excluded = ranks;
    PyObject *result = part_group(module, core, &wanted, rest);
    PyMem_Free(ranks);
    return result;
}

DLPY_PARSED(device_shrink, "_device_shrink", 4, "parent", "excluded", "flags", "child")

/* Called by all ranks of the child; those that are new pass None and their device. */
static PyObject *
device_grow(PyObject *module, PyObject *const *values)
{
    dl_device_split_args wanted = {.way = DL_DEVICE_GROW};

    if (dlpy_int_from(values[1], "device", &wanted.device) < 0) {
        return NULL;
    }
    dl_group *core = values[0] == Py_None ? NULL : group_from(module, values[0]);
    dl_group *whole = group_from(module, values[2]);
    if (whole == NULL || (values[0] != Py_None && core == NULL)) {
        return NULL;
    }
    return part_group(module, core, &wanted, whole);
}

DLPY_PARSED(device_grow, "_device_grow", 3, "parent", "device", "child")

static PyObject *
device_ways(PyObject *module, PyObject *object)
{
    dl_group *group = group_from(module, object);
    dl_status status;
    int ways;

    if (group == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_device_ways(group, dl_deadline_after(DRAIN_PATIENCE), &ways);
    Py_END_ALLOW_THREADS
    return status == DL_OK
               ? PyLong_FromLong(ways)
               : dlpy_raise_collective(dlpy_state_of_module(module), status);
}

static PyObject *
device_name(PyObject *module, PyObject *object)
{
    dl_group *group = group_from(module, object);

    if (group == NULL) {
        return NULL;
    }
    const char *name = dl_device_name(group);
    return name == NULL ? Py_NewRef(Py_None) : PyUnicode_FromString(name);
}

static PyObject *
serves_devices(PyObject *module, PyObject *object)
{
    dl_group *group = group_from(module, object);

    return group == NULL ? NULL : PyBool_FromLong(dl_device_is_served(group));
}

/* May have to wait for another thread's turn, so releases the GIL. */
static PyObject *
batch_begin(PyObject *module, PyObject *object)
{
    dl_group *group = group_from(module, object);
    PyObject *batch = group == NULL ? NULL : PyList_New(0);
    dl_status status;

    if (batch == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_device_batch_begin(group, dl_group_deadline(group));
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        Py_DECREF(batch);
        return dlpy_raise_collective(dlpy_state_of_module(module), status);
    }
    dlpy_group_open_batch(object, batch);
    Py_RETURN_NONE;
}

/* Passes the batch's references to its Work. */
static PyObject *
batch_end(PyObject *module, PyObject *const *values)
{
    dlpy_state *state = dlpy_state_of_module(module);
    dl_work *work = NULL;
    dl_status status;
    bool is_dropped;

    if (dlpy_bool_from(values[1], "is_dropped", &is_dropped) < 0) {
        return NULL;
    }
    dl_group *group = group_from(module, values[0]);
    if (group == NULL) {
        return NULL;
    }
    /* Taken first: at the end of this batch another thread may open the next one. */
    PyObject *batch = dlpy_group_close_batch(values[0]);
    Py_BEGIN_ALLOW_THREADS
    status = dl_device_batch_end(group, is_dropped, dl_group_deadline(group), &work);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (status != DL_OK) {
        dlpy_raise_collective(state, status);
    } else if (work == NULL) {
        result = Py_NewRef(Py_None);
    } else {
        result = dlpy_work_new(state, work, &(dlpy_work_keep){.pins = batch});
        if (result != NULL) {
            dlpy_work_name_group(result, values[0]);
        }
    }
    Py_XDECREF(batch);
    return result;
}

DLPY_PARSED(batch_end, "_batch_end", 2, "group", "is_dropped")

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_device_serve", device_serve_call, DLPY_DOC__DEVICE_SERVE),
    DLPY_FUNCTION("_device_connect", device_connect_call, DLPY_DOC__DEVICE_CONNECT),
    DLPY_FUNCTION("_device_split", device_split_call, DLPY_DOC__DEVICE_SPLIT),
    DLPY_FUNCTION("_device_shrink", device_shrink_call, DLPY_DOC__DEVICE_SHRINK),
    DLPY_FUNCTION("_device_grow", device_grow_call, DLPY_DOC__DEVICE_GROW),
    {"_device_ways", device_ways, METH_O, DLPY_DOC__DEVICE_WAYS},
    {"_device_name", device_name, METH_O, DLPY_DOC__DEVICE_NAME},
    {"_serves_devices", serves_devices, METH_O, DLPY_DOC__SERVES_DEVICES},
    {"_set_cuda_stream", dlpy_set_cuda_stream, METH_O, DLPY_DOC__SET_CUDA_STREAM},
    {"_batch_begin", batch_begin, METH_O, DLPY_DOC__BATCH_BEGIN},
    DLPY_FUNCTION("_batch_end", batch_end_call, DLPY_DOC__BATCH_END),
    {0},
};

const dlpy_part dlpy_device_functions = {.functions = functions};
