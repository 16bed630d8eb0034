/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The methods of Store: requests to the store, methods of the store itself, and
 * store[key] with the related operators.  The requests share one body: a table says
 * which arguments each takes and which member of the request each becomes, and the
 * result follows from the kind of the reply. */
#include "python/stores/store_types.h"

#include <stdlib.h>

#include "base/buffer.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/record/call_site.h"
#include "python/stores/store_request.h"
#include "store/prefix_store.h"

/* The parameters of a METH_METHOD | METH_FASTCALL | METH_KEYWORDS function, the only
 * calling convention that passes the defining class, from which the module's state is
 * found. */
#define METHOD(name)                                             \
    PyObject *name(PyObject *self, PyTypeObject *defining_class, \
                   PyObject *const *args, Py_ssize_t count, PyObject *keywords)

/* The last three parameters of METHOD as one value. */
#define PASSED ((dlpy_call){args, count, keywords})

#define ARGUMENTS_MAX 4

/* The member of the request that an argument becomes. */
typedef enum argument_role {
    ROLE_KEY,
    ROLE_KEYS,
    ROLE_EXPECTED,
    ROLE_VALUE,
    ROLE_VALUES, /* one per key */
    ROLE_NUMBER,
    ROLE_BLOCK,
    ROLE_TIMEOUT,
} argument_role;

typedef struct request_method {
    dlpy_signature signature;
    argument_role roles[ARGUMENTS_MAX];
} request_method;

static const request_method methods[DL_OP_COUNT] = {
    [DL_OP_SET] = {{"set", 2, {"key", "value"}}, {ROLE_KEY, ROLE_VALUE}},
    [DL_OP_GET] = {{"get", 1, {"key", "*timeout"}}, {ROLE_KEY, ROLE_TIMEOUT}},
    [DL_OP_ADD] = {{"add", 2, {"key", "amount"}}, {ROLE_KEY, ROLE_NUMBER}},
    [DL_OP_COMPARE_SET] = {{"compare_set", 3, {"key", "expected", "desired"}},
                           {ROLE_KEY, ROLE_EXPECTED, ROLE_VALUE}},
    [DL_OP_DELETE_KEY] = {{"delete_key", 1, {"key"}}, {ROLE_KEY}},
    [DL_OP_APPEND] = {{"append", 2, {"key", "value"}}, {ROLE_KEY, ROLE_VALUE}},
    [DL_OP_CHECK] = {{"check", 1, {"keys"}}, {ROLE_KEYS}},
    [DL_OP_WAIT] = {{"wait", 1, {"keys", "timeout"}}, {ROLE_KEYS, ROLE_TIMEOUT}},
    [DL_OP_NUM_KEYS] = {{"num_keys", 0, {NULL}}, {0}},
    [DL_OP_LIST_KEYS] = {{"list_keys", 0, {NULL}}, {0}},
    [DL_OP_MULTI_GET] = {{"multi_get", 1, {"keys", "*timeout"}},
                         {ROLE_KEYS, ROLE_TIMEOUT}},
    [DL_OP_MULTI_SET] = {{"multi_set", 2, {"keys", "values"}},
                         {ROLE_KEYS, ROLE_VALUES}},
    [DL_OP_QUEUE_PUSH] = {{"queue_push", 2, {"key", "value"}}, {ROLE_KEY, ROLE_VALUE}},
    [DL_OP_QUEUE_POP] = {{"queue_pop", 1, {"key", "block", "*timeout"}},
                         {ROLE_KEY, ROLE_BLOCK, ROLE_TIMEOUT}},
    [DL_OP_QUEUE_LEN] = {{"queue_len", 1, {"key"}}, {ROLE_KEY}},
    [DL_OP_STATS] = {{"stats", 0, {NULL}}, {0}},
    [DL_OP_BARRIER] = {{"barrier", 2, {"key", "world_size", "timeout"}},
                       {ROLE_KEY, ROLE_NUMBER, ROLE_TIMEOUT}},
};

/* A request built from the arguments, and the objects that own its bytes: the bytes are
 * read in place, and do not move until released. */
typedef struct request_arguments {
    dl_store_request request;
    int64_t timeout;
    int text_count;
    int list_count;
    dlpy_bytes texts[ARGUMENTS_MAX];
    dlpy_bytes_list lists[2];
} request_arguments;

static int
take_text(PyObject *object, const char *name, request_arguments *taken, dl_bytes *bytes)
{
    dlpy_bytes *text = &taken->texts[taken->text_count];

    if (dlpy_bytes_from(object, name, text) < 0) {
        return -1;
    }
    taken->text_count++;
    *bytes = text->bytes;
    return 0;
}

static int
take_list(PyObject *object, const char *name, request_arguments *taken,
          const dl_bytes **items, size_t *count)
{
    dlpy_bytes_list *list = &taken->lists[taken->list_count];

    if (dlpy_bytes_list_from(object, name, list) < 0) {
        return -1;
    }
    taken->list_count++;
    *items = list->bytes;
    *count = list->count;
    return 0;
}

/* Takes the values of multi_set(); the error message is torch's. */
static int
take_values(PyTypeObject *defining_class, PyObject *object, const char *name,
            request_arguments *taken)
{
    size_t count;

    if (take_list(object, name, taken, &taken->request.values, &count) < 0) {
        return -1;
    }
    if (count != taken->request.count) {
        PyErr_SetString(dlpy_state_of_class(defining_class)->store_error,
                        "multiSet keys and values vectors must be of same size");
        return -1;
    }
    return 0;
}

/* Takes one argument; `object` is NULL if it was left out. */
static int
take_argument(PyTypeObject *defining_class, argument_role role, PyObject *object,
              const char *name, request_arguments *taken)
{
    dl_store_request *request = &taken->request;

    switch (role) {
    case ROLE_KEY:
        return take_text(object, name, taken, &request->key);
    case ROLE_KEYS:
        return take_list(object, name, taken, &request->keys, &request->count);
    case ROLE_EXPECTED:
        return take_text(object, name, taken, &request->expected);
    case ROLE_VALUE:
        return take_text(object, name, taken, &request->value);
    case ROLE_VALUES:
        return take_values(defining_class, object, name, taken);
    case ROLE_NUMBER:
        return dlpy_int64_from(object, name, &request->number);
    case ROLE_BLOCK:
        request->is_blocking = true;
        return object == NULL ? 0 : dlpy_bool_from(object, name, &request->is_blocking);
    case ROLE_TIMEOUT:
        return dlpy_timeout_from(object, taken->timeout, &taken->timeout);
    }
    return 0;
}

static void
release_arguments(request_arguments *taken)
{
    while (taken->text_count > 0) {
        dlpy_bytes_release(&taken->texts[--taken->text_count]);
    }
    while (taken->list_count > 0) {
        dlpy_bytes_list_release(&taken->lists[--taken->list_count]);
    }
}

/* Takes all arguments.  After a failure there is nothing to release. */
static int
take_arguments(PyTypeObject *defining_class, dl_store *store, dl_opcode op,
               PyObject *const *values, request_arguments *taken)
{
    const request_method *method = &methods[op];

    taken->request = (dl_store_request){.op = op};
    taken->timeout = dl_store_timeout(store);
    taken->text_count = 0;
    taken->list_count = 0;
    for (int i = 0; i < ARGUMENTS_MAX && method->signature.names[i] != NULL; i++) {
        if (take_argument(defining_class, method->roles[i], values[i],
                          dlpy_argument_name(&method->signature, i), taken)
            < 0) {
            release_arguments(taken);
            return -1;
        }
    }
    return 0;
}

static PyObject *
execute_request(PyTypeObject *defining_class, dl_store *store,
                const request_arguments *taken, dl_store_reply *reply)
{
    dl_status status = dlpy_store_perform(defining_class, store, &taken->request, reply,
                                          taken->timeout);

    /* The message is the thread's last error, which is valid only until another call
     * fails. */
    return status == DL_OK
               ? dlpy_store_result(&taken->request, reply)
               : dlpy_raise_store(dlpy_state_of_class(defining_class), status);
}

/* On failure some of the values may be set already. */
static PyObject *
execute_many(PyTypeObject *defining_class, dl_store *store,
             const request_arguments *taken)
{
    size_t count = taken->request.count;
    dl_store_reply reply = {.values = calloc(count + 1, sizeof(dl_buffer))};

    if (reply.values == NULL) {
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < count; i++) {
        reply.values[i] = dlpy_value_buffer();
    }
    PyObject *answer = execute_request(defining_class, store, taken, &reply);
    for (size_t i = 0; i < count; i++) {
        dl_buffer_fini(&reply.values[i]);
    }
    free(reply.values);
    return answer;
}

static PyObject *
execute_one(PyTypeObject *defining_class, dl_store *store,
            const request_arguments *taken)
{
    dl_reply_kind kind = dl_request_kinds[taken->request.op].reply;
    bool is_object = kind != DL_REPLY_NAMES && kind != DL_REPLY_STATS;
    uint8_t room[256];
    dl_buffer value = {
        .data = room,
        .capacity = sizeof room,
        .is_lent = true,
        .large = is_object ? dlpy_value_resize : NULL,
    };
    dl_store_reply reply = {.values = &value};

    PyObject *answer = execute_request(defining_class, store, taken, &reply);
    dl_buffer_fini(&value);
    return answer;
}

/* Executes a request.  On a store written in Python, a method of Store runs either
 * because the class does not override it, or because the override calls it through
 * super(); so the request is executed on the same store without that override, which
 * prevents infinite recursion. */
static PyObject *
run_request(PyObject *self, PyTypeObject *defining_class, dl_opcode op,
            dlpy_call passed)
{
    /* The store is checked first: that __init__ has not run is the more helpful
     * error. */
    dl_store *store = dlpy_store_core(self);
    PyObject *values[ARGUMENTS_MAX];
    request_arguments taken;
    dlpy_python_store base;

    if (store == NULL
        || dlpy_take_arguments(&methods[op].signature, passed, values) < 0) {
        return NULL;
    }
    store = dlpy_python_store_without(store, op, &base);
    if (take_arguments(defining_class, store, op, values, &taken) < 0) {
        return NULL;
    }
    PyObject *answer = op == DL_OP_MULTI_GET
                           ? execute_many(defining_class, store, &taken)
                           : execute_one(defining_class, store, &taken);
    release_arguments(&taken);
    return answer;
}

/* Python passes the defining class to a method's function, but not the method's
 * name. */
#define REQUEST_METHOD(name, op)                                \
    static METHOD(name)                                         \
    {                                                           \
        return run_request(self, defining_class, (op), PASSED); \
    }

REQUEST_METHOD(store_set, DL_OP_SET)
REQUEST_METHOD(store_get, DL_OP_GET)
REQUEST_METHOD(store_add, DL_OP_ADD)
REQUEST_METHOD(store_compare_set, DL_OP_COMPARE_SET)
REQUEST_METHOD(store_delete_key, DL_OP_DELETE_KEY)
REQUEST_METHOD(store_append, DL_OP_APPEND)
REQUEST_METHOD(store_queue_push, DL_OP_QUEUE_PUSH)
REQUEST_METHOD(store_queue_pop, DL_OP_QUEUE_POP)
REQUEST_METHOD(store_queue_len, DL_OP_QUEUE_LEN)
REQUEST_METHOD(store_check, DL_OP_CHECK)
REQUEST_METHOD(store_wait, DL_OP_WAIT)
REQUEST_METHOD(store_num_keys, DL_OP_NUM_KEYS)
REQUEST_METHOD(store_list_keys, DL_OP_LIST_KEYS)
REQUEST_METHOD(store_multi_get, DL_OP_MULTI_GET)
REQUEST_METHOD(store_multi_set, DL_OP_MULTI_SET)
REQUEST_METHOD(store_barrier, DL_OP_BARRIER)
REQUEST_METHOD(store_stats, DL_OP_STATS)

static PyObject *
store_has_extended_api(PyObject *self, PyObject *Py_UNUSED(unused))
{
    dl_store *store = dlpy_store_core(self);

    if (store == NULL) {
        return NULL;
    }
    /* Asks in Python, because only the method knows the answer of a store written in
     * Python. */
    PyObject *below = ((dlpy_store *)self)->below;
    if (below != NULL) {
        return PyObject_CallMethod(below, "has_extended_api", NULL);
    }
    return PyBool_FromLong(dl_store_has_extended_api(store));
}

/* A clone has the nearest built-in type: a Python subclass may require arguments that
 * only its own __init__ knows. */
static PyTypeObject *
nearest_type(const dlpy_state *state, PyObject *self)
{
    PyTypeObject *const types[] = {state->hash_store_type, state->file_store_type,
                                   state->tcp_store_type};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (PyObject_TypeCheck(self, types[i])) {
            return types[i];
        }
    }
    return state->store_type;
}

/* If the store's clone is the store itself, as for HashStore, returns the same Python
 * object. */
static PyObject *
clone_core(dlpy_state *state, PyObject *self, dl_store *store, int64_t limit)
{
    dl_store *clone = NULL;
    dl_deadline deadline = dl_deadline_after(limit);
    dl_waiting waiting;
    dl_status status;

    dlpy_waiting_enter(state, &waiting, dl_waiting_copy, "store.clone()", deadline);
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_clone(store, &clone, deadline);
    if (clone == store) {
        dl_store_unref(clone); /* the object has a reference already */
    }
    Py_END_ALLOW_THREADS
    dl_waiting_end(&waiting);
    if (status != DL_OK) {
        return dlpy_raise_store(state, status);
    }
    if (clone == store) {
        return Py_NewRef(self);
    }
    return dlpy_store_wrap(nearest_type(state, self), clone);
}

/* Returns the view of `below`, which is a clone, that `self` is of the original. */
static PyObject *
view_like(const dlpy_state *state, const dlpy_store *self, PyObject *below)
{
    PyObject *prefix = dlpy_text_from(dl_prefix_store_prefix(self->store));
    PyObject *view =
        prefix == NULL ? NULL
                       : PyObject_CallFunctionObjArgs(
                             (PyObject *)state->prefix_store_type, prefix, below, NULL);
    Py_XDECREF(prefix);
    return view;
}

/* A store written in Python has the clone() of its class, or none.  A view is cloned in
 * Python, so that its clone refers to the object that it is a view of, which may have a
 * clone() of its own.  `timeout` is NULL for the store's own. */
static PyObject *
clone_within(dlpy_state *state, PyObject *self, PyObject *timeout)
{
    dl_store *store = dlpy_store_core(self);
    PyObject *below = store == NULL ? NULL : ((dlpy_store *)self)->below;
    int64_t limit;

    if (store == NULL) {
        return NULL;
    }
    if (dlpy_python_store_check(store)) {
        return dlpy_raise_store(state, dl_store_fail_missing(store, "clone"));
    }
    if (below == NULL) {
        timeout = timeout == NULL ? Py_None : timeout;
        return dlpy_timeout_from(timeout, dl_store_timeout(store), &limit) < 0
                   ? NULL
                   : clone_core(state, self, store, limit);
    }
    dl_status status = dl_store_admit(store);
    if (status != DL_OK) {
        return dlpy_raise_store(state, status);
    }
    bool is_of_python = dlpy_python_store_check(dlpy_store_core(below));
    PyObject *clone = timeout == NULL || is_of_python
                          ? PyObject_CallMethod(below, "clone", NULL)
                          : clone_within(state, below, timeout);
    PyObject *view = clone == NULL ? NULL : view_like(state, (dlpy_store *)self, clone);
    Py_XDECREF(clone);
    return view;
}

static METHOD(store_clone)
{
    static const dlpy_signature signature = {"clone", 0, {"*_timeout"}};
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
    PyObject *values[1];

    (void)defining_class;
    if (state == NULL || dlpy_take_arguments(&signature, PASSED, values) < 0) {
        return NULL;
    }
    return clone_within(state, self, values[0]);
}

PyObject *
dlpy_store_get_timeout(PyObject *self, void *Py_UNUSED(closure))
{
    dl_store *store = dlpy_store_core(self);

    return store == NULL ? NULL : dlpy_timedelta_from(dl_store_timeout(store));
}

static METHOD(store_set_timeout)
{
    static const dlpy_signature signature = {"set_timeout", 1, {"timeout"}};
    dl_store *store = dlpy_store_core(self);
    PyObject *values[1];
    int64_t timeout;

    (void)defining_class;
    if (store == NULL || dlpy_take_arguments(&signature, PASSED, values) < 0) {
        return NULL;
    }
    if (values[0] == Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        "timeout must be a datetime.timedelta or seconds as a number; "
                        "to wait forever, pass a negative number");
        return NULL;
    }
    if (dlpy_timeout_from(values[0], 0, &timeout) < 0) {
        return NULL;
    }
    dl_store_set_timeout(store, timeout);
    Py_RETURN_NONE;
}

/* Releases the GIL: closing has no deadline, but ends threads and may wait briefly for
 * a file's lock.  A signal must not interrupt it halfway. */
static PyObject *
store_close(PyObject *self, PyObject *Py_UNUSED(unused))
{
    dl_store *store = dlpy_store_core(self);

    if (store == NULL) {
        return NULL;
    }
    /* Holds signals on this thread only; calls of other threads remain
     * interruptible. */
    dlpy_signals_hold();
    Py_BEGIN_ALLOW_THREADS
    dl_store_close(store);
    Py_END_ALLOW_THREADS
    dlpy_signals_release();
    Py_RETURN_NONE;
}

/* Fails if __init__ has not run. */
static PyObject *
store_enter(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return dlpy_store_core(self) == NULL ? NULL : Py_NewRef(self);
}

static METHOD(store_exit)
{
    static const dlpy_signature signature = {
        "__exit__", 3, {"exception_type", "exception", "traceback"}};
    PyObject *values[3];

    (void)defining_class;
    if (dlpy_take_arguments(&signature, PASSED, values) < 0) {
        return NULL;
    }
    /* Calls the method, as a Python subclass may override close(). */
    PyObject *result = PyObject_CallMethod(self, "close", NULL);
    /* The exception of the body is more important. */
    if (result == NULL && values[0] != Py_None
        && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return result;
}

/* Calls a function or class of distlite.stores with the store and the caller's
 * arguments. Methods whose cost is that of their round trips are written in Python.
 * The module is imported here so that programs without them do not load it. */
static PyObject *
call_in_python(const char *home, const char *name, PyObject *self, dlpy_call passed)
{
    PyObject *module = PyImport_ImportModule(home);
    PyObject *function = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    size_t count =
        (size_t)passed.count
        + (passed.keywords == NULL ? 0 : (size_t)PyTuple_GET_SIZE(passed.keywords));
    PyObject **arguments = PyMem_New(PyObject *, count + 1);
    PyObject *result = NULL;

    Py_XDECREF(module);
    if (arguments == NULL) {
        PyErr_NoMemory();
    } else if (function != NULL) {
        arguments[0] = self;
        for (size_t i = 0; i < count; i++) {
            arguments[i + 1] = passed.args[i];
        }
        result = PyObject_Vectorcall(function, arguments, (size_t)passed.count + 1,
                                     passed.keywords);
    }
    PyMem_Free(arguments);
    Py_XDECREF(function);
    return result;
}

/* The most parameters of a method that is written in Python. */
#define PYTHON_ARGUMENTS_MAX 3

/* Defines a method that is `function` of the module `home`. The arguments are checked
 * here, as those of all methods, and with the same messages. */
#define PYTHON_METHOD(name, home, function, required, ...)                            \
    static METHOD(store_##name)                                                       \
    {                                                                                 \
        static const dlpy_signature signature = {#name, required, {__VA_ARGS__}};     \
        PyObject *values[PYTHON_ARGUMENTS_MAX];                                       \
                                                                                      \
        (void)defining_class;                                                         \
        return dlpy_store_core(self) == NULL                                          \
                       || dlpy_take_arguments(&signature, PASSED, values) < 0         \
                   ? NULL                                                             \
                   : call_in_python("distlite.stores." home, function, self, PASSED); \
    }

PYTHON_METHOD(items, "reading", "read_items", 0, "prefix")
PYTHON_METHOD(lock, "store_lock", "StoreLock", 1, "name", "timeout", "*lease")

/* Returns the class and the arguments of the same view over a handle of the store
 * below. */
static PyObject *
reduce_prefix_store(const dlpy_state *state, dlpy_store *self)
{
    PyObject *prefix = dlpy_text_from(dl_prefix_store_prefix(self->store));

    return prefix == NULL
               ? NULL
               : Py_BuildValue("O(NO)", state->prefix_store_type, prefix, self->below);
}

/* Called by both pickle and copy. */
static PyObject *
store_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));

    if (state == NULL || dlpy_store_core(self) == NULL) {
        return NULL;
    }
    if (Py_TYPE(self) == state->prefix_store_type) {
        return reduce_prefix_store(state, (dlpy_store *)self);
    }
    return call_in_python("distlite.stores.handles", "reduce", self, (dlpy_call){0});
}

#define FUNCTION(function) (PyCFunction)(void (*)(void))(function)
#define FLAGS (METH_METHOD | METH_FASTCALL | METH_KEYWORDS)

/* The docstring of Store documents what all methods have in common. */
PyMethodDef dlpy_store_methods[] = {
    {"set", FUNCTION(store_set), FLAGS, DLPY_DOC_STORE_SET},
    {"get", FUNCTION(store_get), FLAGS, DLPY_DOC_STORE_GET},
    {"add", FUNCTION(store_add), FLAGS, DLPY_DOC_STORE_ADD},
    {"compare_set", FUNCTION(store_compare_set), FLAGS, DLPY_DOC_STORE_COMPARE_SET},
    {"delete_key", FUNCTION(store_delete_key), FLAGS, DLPY_DOC_STORE_DELETE_KEY},
    {"append", FUNCTION(store_append), FLAGS, DLPY_DOC_STORE_APPEND},
    {"queue_push", FUNCTION(store_queue_push), FLAGS, DLPY_DOC_STORE_QUEUE_PUSH},
    {"queue_pop", FUNCTION(store_queue_pop), FLAGS, DLPY_DOC_STORE_QUEUE_POP},
    {"queue_len", FUNCTION(store_queue_len), FLAGS, DLPY_DOC_STORE_QUEUE_LEN},
    {"check", FUNCTION(store_check), FLAGS, DLPY_DOC_STORE_CHECK},
    {"wait", FUNCTION(store_wait), FLAGS, DLPY_DOC_STORE_WAIT},
    {"num_keys", FUNCTION(store_num_keys), FLAGS, DLPY_DOC_STORE_NUM_KEYS},
    {"list_keys", FUNCTION(store_list_keys), FLAGS, DLPY_DOC_STORE_LIST_KEYS},
    {"multi_get", FUNCTION(store_multi_get), FLAGS, DLPY_DOC_STORE_MULTI_GET},
    {"multi_set", FUNCTION(store_multi_set), FLAGS, DLPY_DOC_STORE_MULTI_SET},
    {"barrier", FUNCTION(store_barrier), FLAGS, DLPY_DOC_STORE_BARRIER},
    {"stats", FUNCTION(store_stats), FLAGS, DLPY_DOC_STORE_STATS},
    {"has_extended_api", store_has_extended_api, METH_NOARGS,
     DLPY_DOC_STORE_HAS_EXTENDED_API},
    {"clone", FUNCTION(store_clone), FLAGS, DLPY_DOC_STORE_CLONE},
    {"set_timeout", FUNCTION(store_set_timeout), FLAGS, DLPY_DOC_STORE_SET_TIMEOUT},
    {"close", store_close, METH_NOARGS, DLPY_DOC_STORE_CLOSE},
    {"items", FUNCTION(store_items), FLAGS, DLPY_DOC_STORE_ITEMS},
    {"lock", FUNCTION(store_lock), FLAGS, DLPY_DOC_STORE_LOCK},
    {"__enter__", store_enter, METH_NOARGS, DLPY_DOC_STORE___ENTER__},
    {"__exit__", FUNCTION(store_exit), FLAGS, DLPY_DOC_STORE___EXIT__},
    {"__reduce__", store_reduce, METH_NOARGS,
     "__reduce__($self)\n--\n\n"
     "Returns what pickle and copy need to make another handle of the same data."},
    {NULL, NULL, 0, NULL},
};
