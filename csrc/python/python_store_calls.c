/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/python_store_calls.h"

#include "python/convert.h"
#include "python/python_call.h"
#include "python/store_types.h"

/* A new list for every call: the override may keep or change it. */
static PyObject *
list_from(const dl_bytes *items, size_t count, PyObject *(*convert)(dl_bytes))
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = convert(items[i]);
        if (item == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
        }
    }
    return list;
}

/* Methods have no deadline of their own but for wait() and barrier(). */
static bool
is_own_timeout(dl_store *store, dl_deadline deadline)
{
    int64_t timeout = dl_store_timeout(store);

    return deadline.limit == timeout || (deadline.limit < 0 && timeout < 0);
}

/* For ever is any negative timedelta. */
static PyObject *
timedelta_left(dl_deadline deadline)
{
    int64_t left = dl_deadline_left(deadline);

    return dlpy_timedelta_from(left == INT64_MAX ? -DL_SECOND : left);
}

static dl_status
python_set(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_nothing(&call, PyObject_CallMethod(call.object, "set", "NN",
                                                            dlpy_text_from(key),
                                                            dlpy_object_from(value)));
}

/* get() and multi_get() in Python wait as long as they please: a caller with other plans
 * sees to it first that there is nothing to wait for. */
static dl_status
wait_first(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    bool exist = false;

    if (is_own_timeout(store, deadline)) {
        return DL_OK;
    }
    if (deadline.limit != 0) {
        return dl_store_wait(store, keys, count, deadline);
    }
    DL_TRY(dl_store_check(store, keys, count, &exist, deadline));
    return exist ? DL_OK : dl_store_fail_timeout("", keys, count, deadline);
}

static dl_status
python_get(dl_store *store, dl_bytes key, dl_buffer *value, dl_deadline deadline)
{
    dlpy_python_call call;

    DL_TRY(wait_first(store, &key, 1, deadline));
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_bytes(
        &call, PyObject_CallMethod(call.object, "get", "N", dlpy_text_from(key)),
        value);
}

static dl_status
python_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
           dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_number(&call,
                                PyObject_CallMethod(call.object, "add", "NL",
                                                    dlpy_text_from(key),
                                                    (long long)delta),
                                sum);
}

static dl_status
python_compare_set(dl_store *store, dl_bytes key, dl_bytes expected, dl_bytes desired,
                   dl_buffer *held, dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    PyObject *result =
        PyObject_CallMethod(call.object, "compare_set", "NNN", dlpy_text_from(key),
                            dlpy_object_from(expected), dlpy_object_from(desired));
    return dlpy_call_end_bytes(&call, result, held);
}

static dl_status
python_delete_key(dl_store *store, dl_bytes key, bool *existed, dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_truth(
        &call, PyObject_CallMethod(call.object, "delete_key", "N", dlpy_text_from(key)),
        existed);
}

static dl_status
python_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
             dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_truth(
        &call,
        PyObject_CallMethod(call.object, "check", "N",
                            list_from(keys, count, dlpy_text_from)),
        exist);
}

/* Overrides may take the timeout or not, so it is passed only if it says something. */
static dl_status
python_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    bool is_own = is_own_timeout(store, deadline);
    dlpy_python_call call;
    PyObject *result;

    DL_TRY(dlpy_call_begin(store, &call));
    PyObject *names = list_from(keys, count, dlpy_text_from);
    if (is_own) {
        result = PyObject_CallMethod(call.object, "wait", "N", names);
    } else {
        result = PyObject_CallMethod(call.object, "wait", "NN", names,
                                     timedelta_left(deadline));
    }
    return dlpy_call_end_nothing(&call, result);
}

static dl_status
python_num_keys(dl_store *store, int64_t *count, dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_number(
        &call, PyObject_CallMethod(call.object, "num_keys", NULL), count);
}

/* One of the names.  -1 with an exception; a failed visit is `*status` and 0. */
static int
visit_name(PyObject *name, dl_status (*visit)(void *, dl_bytes), void *context,
           dl_status *status)
{
    dlpy_bytes bytes;

    if (dlpy_bytes_from(name, "a key returned by a store", &bytes) < 0) {
        return -1;
    }
    *status = visit(context, bytes.bytes);
    dlpy_bytes_release(&bytes);
    return 0;
}

/* The names are copied into a list first: the override may answer with a view of its own
 * dict, which another thread could change under the loop. */
static dl_status
python_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes), void *context,
                 dl_deadline deadline)
{
    dlpy_python_call call;
    dl_status status = DL_OK;
    bool succeeded = false;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    PyObject *names = PyObject_CallMethod(call.object, "list_keys", NULL);
    PyObject *list = names == NULL ? NULL : PySequence_List(names);
    if (list != NULL) {
        succeeded = true;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list) && succeeded; i++) {
            succeeded =
                visit_name(PyList_GET_ITEM(list, i), visit, context, &status) == 0;
            if (status != DL_OK) {
                break;
            }
        }
    }
    Py_XDECREF(list);
    Py_XDECREF(names);
    dl_status ended = dlpy_call_end(&call, succeeded);
    return ended != DL_OK ? ended : status;
}

static dl_status
python_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_nothing(&call, PyObject_CallMethod(call.object, "append", "NN",
                                                            dlpy_text_from(key),
                                                            dlpy_object_from(value)));
}

/* The core made room for one value per key, so any other number is an error. */
static bool
store_all_bytes(PyObject *result, size_t count, dl_buffer *values)
{
    PyObject *list = PySequence_List(result);
    bool succeeded = list != NULL;

    if (succeeded && (size_t)PyList_GET_SIZE(list) != count) {
        PyErr_Format(PyExc_ValueError, "multi_get() returned %zd values for %zu keys",
                     PyList_GET_SIZE(list), count);
        succeeded = false;
    }
    for (size_t i = 0; succeeded && i < count; i++) {
        succeeded =
            dlpy_call_store_bytes(PyList_GET_ITEM(list, (Py_ssize_t)i), &values[i]);
    }
    Py_XDECREF(list);
    return succeeded;
}

static dl_status
python_multi_get(dl_store *store, const dl_bytes *keys, size_t count, dl_buffer *values,
                 dl_deadline deadline)
{
    dlpy_python_call call;

    DL_TRY(wait_first(store, keys, count, deadline));
    DL_TRY(dlpy_call_begin(store, &call));
    PyObject *result = PyObject_CallMethod(call.object, "multi_get", "N",
                                           list_from(keys, count, dlpy_text_from));
    bool succeeded = result != NULL && store_all_bytes(result, count, values);
    Py_XDECREF(result);
    return dlpy_call_end(&call, succeeded);
}

static dl_status
python_multi_set(dl_store *store, const dl_bytes *keys, const dl_bytes *values,
                 size_t count, dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_nothing(
        &call, PyObject_CallMethod(call.object, "multi_set", "NN",
                                   list_from(keys, count, dlpy_text_from),
                                   list_from(values, count, dlpy_object_from)));
}

static dl_status
python_queue_push(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_nothing(&call, PyObject_CallMethod(call.object, "queue_push",
                                                            "NN", dlpy_text_from(key),
                                                            dlpy_object_from(value)));
}

static dl_status
python_queue_pop(dl_store *store, dl_bytes key, bool is_blocking, dl_buffer *value,
                 dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_bytes(&call,
                               PyObject_CallMethod(call.object, "queue_pop", "NO",
                                                   dlpy_text_from(key),
                                                   is_blocking ? Py_True : Py_False),
                               value);
}

static dl_status
python_queue_len(dl_store *store, dl_bytes key, int64_t *count, dl_deadline deadline)
{
    dlpy_python_call call;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_number(
        &call, PyObject_CallMethod(call.object, "queue_len", "N", dlpy_text_from(key)),
        count);
}

static dl_status
python_barrier(dl_store *store, dl_bytes key, int64_t world_size, dl_deadline deadline)
{
    dlpy_python_call call;

    DL_TRY(dlpy_call_begin(store, &call));
    return dlpy_call_end_nothing(
        &call, PyObject_CallMethod(call.object, "barrier", "NLN", dlpy_text_from(key),
                                   (long long)world_size, timedelta_left(deadline)));
}

/* What the core gets is a store that keeps the clone alive. */
static dl_status
python_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    dlpy_python_call call;
    dl_store *shared = NULL;

    (void)deadline;
    DL_TRY(dlpy_call_begin(store, &call));
    PyObject *result = PyObject_CallMethod(call.object, "clone", NULL);
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(call.object));
    if (result != NULL && state != NULL) {
        shared = dlpy_store_share(state, result);
    }
    Py_XDECREF(result);
    if (shared != NULL) {
        *clone = shared;
    }
    return dlpy_call_end(&call, shared != NULL);
}

/* Once the interpreter has ended there is nothing left to give the reference to. */
static void
python_free(dl_store *store)
{
    dlpy_python_store *self = (dlpy_python_store *)store;

    if (self->owns_object && Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        Py_CLEAR(self->object);
        PyGILState_Release(gil);
    }
    PyMem_RawFree(self);
}

/* Needs no GIL: a copy holds its object, whose store is fixed. */
dl_store *
dlpy_python_store_timeout_owner(dl_store *store)
{
    return ((dlpy_store *)((dlpy_python_store *)store)->object)->store;
}

const dl_store_ops dlpy_python_store_ops = {
    .kind = "Store",
    .set = python_set,
    .get = python_get,
    .add = python_add,
    .compare_set = python_compare_set,
    .delete_key = python_delete_key,
    .check = python_check,
    .wait = python_wait,
    .num_keys = python_num_keys,
    .list_keys = python_list_keys,
    .append = python_append,
    .multi_get = python_multi_get,
    .multi_set = python_multi_set,
    .queue_push = python_queue_push,
    .queue_pop = python_queue_pop,
    .queue_len = python_queue_len,
    .barrier = python_barrier,
    .clone = python_clone,
    .free = python_free,
};
