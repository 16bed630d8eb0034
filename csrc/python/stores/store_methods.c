/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The methods of Store: requests to the store, methods of the store itself, and
 * store[key] with the related operators.  The requests share one body: a table says
 * which arguments each takes and which member of the request each becomes, and the
 * result follows from the kind of the reply. */
#include "python/stores/store_types.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/text.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/record/call_site.h"
#include "python/stores/python_store.h"
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

/* Leaves room for what follows a key in the text of a wait. */
#define LONGEST_KEY 72

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
release(request_arguments *taken)
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
            release(taken);
            return -1;
        }
    }
    return 0;
}

/* The offset of the contents in a bytes object. */
#define BYTES_OFFSET offsetof(PyBytesObject, ob_sval)

static PyObject *
bytes_around(void *data)
{
    return (PyObject *)(void *)((char *)data - BYTES_OFFSET);
}

/* Allocates a new object rather than resizing in place, where the interpreter would
 * free the old object on failure. */
static void *
resize_bytes(void *data, size_t kept, size_t capacity)
{
    /* The core calls this without the GIL, while it receives a reply, on the thread of
     * Python that has called it.  At the interpreter's end that thread stops here, as
     * it would when the call returns; the main thread, which ends the interpreter, goes
     * on, so this does not ask dlpy_may_enter(). */
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *bytes = NULL;

    if (capacity > 0) {
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)capacity);
        /* The core reports the lack of memory by its status; an exception left set here
         * would surface in unrelated Python code. */
        if (bytes == NULL) {
            PyErr_Clear();
        } else if (kept > 0) {
            memcpy(PyBytes_AS_STRING(bytes), data, kept);
        }
    }
    if (data != NULL && (bytes != NULL || capacity == 0)) {
        Py_DECREF(bytes_around(data));
    }
    PyGILState_Release(gil);
    return bytes == NULL ? NULL : PyBytes_AS_STRING(bytes);
}

/* Returns an empty buffer that the core fills without the GIL and that then becomes a
 * bytes object.  A large one is allocated as a bytes object from the start: a second
 * copy would cost as much as receiving the value. */
static dl_buffer
value_buffer(void)
{
    return (dl_buffer){.large = resize_bytes};
}

/* Returns the contents as bytes, or NULL with an exception set.  Large contents are
 * taken out of the buffer.  Shrinking frees the rest; it happens only if a value arrived
 * in pieces. */
static PyObject *
object_from_buffer(dl_buffer *buffer)
{
    if (!buffer->is_large) {
        return PyBytes_FromStringAndSize((const char *)buffer->data,
                                         (Py_ssize_t)buffer->size);
    }
    PyObject *bytes = bytes_around(buffer->data);
    size_t size = buffer->size;
    bool is_exact = size == buffer->capacity;
    *buffer = value_buffer();
    if (!is_exact) {
        _PyBytes_Resize(&bytes, (Py_ssize_t)size);
    }
    return bytes;
}

/* Empties the buffers one by one, so that large values never exist twice. */
static PyObject *
values_to_list(dl_buffer *values, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *value = object_from_buffer(&values[i]);
        dl_buffer_fini(&values[i]);
        if (value == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, value);
    }
    return list;
}

static PyObject *
names_to_list(const dl_store_reply *reply)
{
    dl_reader names = dl_reader_of(dl_buffer_bytes(reply->values));
    PyObject *list = PyList_New((Py_ssize_t)reply->number);
    dl_bytes bytes;

    for (Py_ssize_t i = 0; list != NULL && dl_take_bytes(&names, SIZE_MAX, &bytes) == 1;
         i++) {
        PyObject *name = dlpy_text_from(bytes);
        if (name == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, name);
    }
    return list;
}

/* Returns the dict in which the fact `*name` belongs, borrowed: that of its group,
 * whose name is removed from the front of `*name`, or `facts` itself. */
static PyObject *
group_of(PyObject *facts, dl_bytes *name)
{
    const uint8_t *slash = memchr(name->data, '/', name->size);

    if (slash == NULL) {
        return facts;
    }
    size_t size = (size_t)(slash - name->data);
    PyObject *key = dlpy_text_from((dl_bytes){name->data, size});
    PyObject *empty = key == NULL ? NULL : PyDict_New();
    PyObject *group = empty == NULL ? NULL : PyDict_SetDefault(facts, key, empty);

    Py_XDECREF(key);
    Py_XDECREF(empty);
    *name = (dl_bytes){slash + 1, name->size - size - 1};
    if (group != NULL && !PyDict_Check(group)) {
        PyErr_SetString(PyExc_ValueError, "the server's statistics are malformed");
        return NULL;
    }
    return group;
}

static PyObject *
fact_from(dl_bytes value)
{
    PyObject *text = dlpy_text_from(value);
    bool is_number = true;

    for (size_t i = 0; i < value.size; i++) {
        is_number = is_number && value.data[i] >= '0' && value.data[i] <= '9';
    }
    if (text == NULL || !is_number || value.size > 20) {
        return text;
    }
    PyObject *number = PyLong_FromUnicodeObject(text, 10);
    Py_DECREF(text);
    return number;
}

static PyObject *
stats_to_dict(dl_bytes text)
{
    PyObject *facts = PyDict_New();
    dl_bytes name, value;
    int taken = 1;

    while (facts != NULL && (taken = dl_reply_take_fact(&text, &name, &value)) == 1) {
        PyObject *group = group_of(facts, &name);
        PyObject *key = group == NULL ? NULL : dlpy_text_from(name);
        PyObject *fact = key == NULL ? NULL : fact_from(value);
        if (fact == NULL || PyDict_SetItem(group, key, fact) < 0) {
            Py_CLEAR(facts);
        }
        Py_XDECREF(key);
        Py_XDECREF(fact);
    }
    if (taken < 0) {
        Py_CLEAR(facts);
        PyErr_SetString(PyExc_ValueError, "the server's statistics are malformed");
    }
    return facts;
}

static PyObject *
result_from(const dl_store_request *request, dl_store_reply *reply)
{
    switch (dl_request_kinds[request->op].reply) {
    case DL_REPLY_ALL_EXIST:
    case DL_REPLY_EXISTED:
        return PyBool_FromLong(reply->number != 0);
    case DL_REPLY_NUMBER:
        return PyLong_FromLongLong(reply->number);
    case DL_REPLY_VALUE:
    case DL_REPLY_ITEM:
        return object_from_buffer(reply->values);
    case DL_REPLY_VALUES:
        return values_to_list(reply->values, request->count);
    case DL_REPLY_NAMES:
        return names_to_list(reply);
    case DL_REPLY_STATS:
        return stats_to_dict(dl_buffer_bytes(reply->values));
    default:
        return Py_NewRef(Py_None);
    }
}

/* Writes a request such as "store.wait('first' and 2 more)". */
static void
describe_request(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    const dl_store_request *request = subject;
    dl_bytes key = request->count > 0 ? request->keys[0] : request->key;
    size_t size = 0;

    dl_text_append(text, DL_WAIT_ROW_TEXT, &size, "store.%s(",
                   dl_request_kinds[request->op].name);
    if (key.size > 0) {
        size_t shown = key.size < LONGEST_KEY ? key.size : LONGEST_KEY;
        dl_text_append(text, DL_WAIT_ROW_TEXT, &size, "'");
        dl_text_append_escaped(text, LONGEST_KEY, &size, (const char *)key.data, shown);
        dl_text_append(text, DL_WAIT_ROW_TEXT, &size, "'");
    }
    if (request->count > 1) {
        dl_text_append(text, DL_WAIT_ROW_TEXT, &size, " and %zu more",
                       request->count - 1);
    }
    dl_text_append(text, DL_WAIT_ROW_TEXT, &size, ")");
}

/* Of a brief store only threads of this process keep a request waiting, and noting that
 * would take a tenth of a request. */
static void
enter_request(PyTypeObject *type, dl_store *store, dl_waiting *waiting,
              const dl_store_request *request, dl_deadline deadline)
{
    *waiting = (dl_waiting){0};
    if (!dl_store_is_brief(store)) {
        dlpy_waiting_enter(dlpy_state_of_type(type), waiting, describe_request, request,
                           deadline);
    }
}

/* The timeout starts here: converting the arguments may have run Python code.  A brief
 * store waits for keys only: without them the time need not be read. */
static dl_status
perform(PyTypeObject *type, dl_store *store, const dl_store_request *request,
        dl_store_reply *reply, int64_t timeout)
{
    dl_waiting waiting;
    dlpy_gil gil;

    bool is_brief = dl_store_is_brief(store);
    bool may_wait = dl_request_kinds[request->op].may_wait;
    dl_deadline deadline = dl_deadline_after(is_brief && !may_wait ? -1 : timeout);
    enter_request(type, store, &waiting, request, deadline);
    dlpy_gil_leave(&gil, is_brief);
    dl_status status = dl_store_execute(store, request, reply, deadline);
    dl_waiting_end(&waiting);
    return dlpy_gil_return(&gil, status);
}

static PyObject *
execute(PyTypeObject *defining_class, dl_store *store, const request_arguments *taken,
        dl_store_reply *reply)
{
    dl_status status =
        perform(defining_class, store, &taken->request, reply, taken->timeout);

    /* The message is the thread's last error, which is valid only until another call
     * fails. */
    return status == DL_OK
               ? result_from(&taken->request, reply)
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
        reply.values[i] = value_buffer();
    }
    PyObject *answer = execute(defining_class, store, taken, &reply);
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
        .large = is_object ? resize_bytes : NULL,
    };
    dl_store_reply reply = {.values = &value};

    PyObject *answer = execute(defining_class, store, taken, &reply);
    dl_buffer_fini(&value);
    return answer;
}

/* Executes a request.  On a store written in Python, a method of Store runs either
 * because the class does not override it, or because the override calls it through
 * super(); so the request is executed on the same store without that override, which
 * prevents infinite recursion. */
static PyObject *
run(PyObject *self, PyTypeObject *defining_class, dl_opcode op, dlpy_call passed)
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
    release(&taken);
    return answer;
}

/* Python passes the defining class to a method's function, but not the method's
 * name. */
#define REQUEST_METHOD(name, op)                        \
    static METHOD(name)                                 \
    {                                                   \
        return run(self, defining_class, (op), PASSED); \
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
store_has_extended_api(PyObject *self, PyObject *unused)
{
    dl_store *store = dlpy_store_core(self);

    (void)unused;
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
clone_core(dlpy_state *state, PyObject *self, dl_store *store)
{
    dl_store *clone = NULL;
    dl_deadline deadline = dl_store_deadline(store);
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

/* Clones in Python, so that the clone refers to the object that it is a view of. */
static PyObject *
clone_prefix_store(const dlpy_state *state, dlpy_store *self)
{
    dl_status status = dl_store_admit(self->store);

    if (status != DL_OK) {
        return dlpy_raise_store(state, status);
    }
    PyObject *below = PyObject_CallMethod(self->below, "clone", NULL);
    if (below == NULL) {
        return NULL;
    }
    PyObject *prefix = dlpy_text_from(dl_prefix_store_prefix(self->store));
    PyObject *clone =
        prefix == NULL ? NULL
                       : PyObject_CallFunctionObjArgs(
                             (PyObject *)state->prefix_store_type, prefix, below, NULL);
    Py_XDECREF(prefix);
    Py_DECREF(below);
    return clone;
}

/* A store written in Python has the clone() of its class, or none. */
static PyObject *
store_clone(PyObject *self, PyObject *unused)
{
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
    dl_store *store = dlpy_store_core(self);

    (void)unused;
    if (state == NULL || store == NULL) {
        return NULL;
    }
    if (dlpy_python_store_check(store)) {
        return dlpy_raise_store(state, dl_store_fail_missing(store, "clone"));
    }
    if (((dlpy_store *)self)->below != NULL) {
        return clone_prefix_store(state, (dlpy_store *)self);
    }
    return clone_core(state, self, store);
}

PyObject *
dlpy_store_get_timeout(PyObject *self, void *closure)
{
    dl_store *store = dlpy_store_core(self);

    (void)closure;
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
store_close(PyObject *self, PyObject *unused)
{
    dl_store *store = dlpy_store_core(self);

    (void)unused;
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
store_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
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
#define PYTHON_ARGUMENTS_MAX 4

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

PYTHON_METHOD(dict, "store_dict", "StoreDict", 0, "prefix")
PYTHON_METHOD(items, "reading", "read_items", 0, "prefix")
PYTHON_METHOD(watch, "watching", "watch", 0, "prefix", "timeout", "initial",
              "*interval")
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
store_reduce(PyObject *self, PyObject *unused)
{
    const dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));

    (void)unused;
    if (state == NULL || dlpy_store_core(self) == NULL) {
        return NULL;
    }
    if (Py_TYPE(self) == state->prefix_store_type) {
        return reduce_prefix_store(state, (dlpy_store *)self);
    }
    return call_in_python("distlite.stores.handles", "reduce", self, (dlpy_call){0});
}

/* Slots do not receive the defining class; only errors need the state. */
static PyObject *
raise_for(PyObject *self, dl_status status)
{
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));

    return state == NULL ? NULL : dlpy_raise_store(state, status);
}

/* Executes the request of an operator such as store[key], where `value` is NULL if it has
 * none.  On failure an exception is set, but not for a get that found no key in time. */
static dl_status
run_item(PyObject *self, dl_opcode op, PyObject *key, PyObject *value,
         dl_store_reply *reply)
{
    dl_store *store = dlpy_store_core(self);
    dl_store_request request = {.op = op};
    dlpy_bytes name;
    dlpy_bytes content = {0};

    if (store == NULL || dlpy_bytes_from(key, "key", &name) < 0) {
        return DL_INTERRUPTED;
    }
    if (value != NULL && dlpy_bytes_from(value, "value", &content) < 0) {
        dlpy_bytes_release(&name);
        return DL_INTERRUPTED;
    }
    if (op == DL_OP_CHECK) {
        request.keys = &name.bytes;
        request.count = 1;
    } else {
        request.key = name.bytes;
        request.value = content.bytes;
    }
    /* A get does not wait: a timeout of zero checks once; the round trip to a server has
     * a grace period of its own. */
    int64_t timeout = op == DL_OP_GET ? 0 : dl_store_timeout(store);
    dl_status status = perform(Py_TYPE(self), store, &request, reply, timeout);
    if (status != DL_OK && !(op == DL_OP_GET && status == DL_TIMEOUT)) {
        raise_for(self, status);
    }
    dlpy_bytes_release(&content);
    dlpy_bytes_release(&name);
    return status;
}

/* Unlike get(), does not wait: an absent key is a KeyError at once. */
PyObject *
dlpy_store_subscript(PyObject *self, PyObject *key)
{
    dl_buffer value = value_buffer();
    dl_store_reply reply = {.values = &value};
    PyObject *result = NULL;
    dl_status status = run_item(self, DL_OP_GET, key, NULL, &reply);

    if (status == DL_OK) {
        result = object_from_buffer(&value);
    } else if (status == DL_TIMEOUT
               && run_item(self, DL_OP_CHECK, key, NULL, &reply) == DL_OK) {
        /* Otherwise the server does not answer, which the check has raised. */
        PyErr_SetObject(PyExc_KeyError, key);
    }
    dl_buffer_fini(&value);
    return result;
}

/* Same as set(). */
static int
set_item(PyObject *self, PyObject *key, PyObject *value)
{
    return run_item(self, DL_OP_SET, key, value, &(dl_store_reply){0}) == DL_OK ? 0
                                                                                : -1;
}

/* Raises KeyError if there is no such key, unlike delete_key(), which returns False. */
static int
delete_item(PyObject *self, PyObject *key)
{
    dl_store_reply reply = {0};

    if (run_item(self, DL_OP_DELETE_KEY, key, NULL, &reply) != DL_OK) {
        return -1;
    }
    if (reply.number == 0) {
        PyErr_SetObject(PyExc_KeyError, key);
        return -1;
    }
    return 0;
}

int
dlpy_store_set_subscript(PyObject *self, PyObject *key, PyObject *value)
{
    return value == NULL ? delete_item(self, key) : set_item(self, key, value);
}

/* As for check(), a queue that is not empty exists. */
int
dlpy_store_contains(PyObject *self, PyObject *key)
{
    dl_store_reply reply = {0};

    return run_item(self, DL_OP_CHECK, key, NULL, &reply) == DL_OK ? reply.number != 0
                                                                   : -1;
}

/* Iterates over a snapshot of the keys: changes during the loop do not affect it. */
PyObject *
dlpy_store_iterate(PyObject *self)
{
    /* Calls the method, so that a loop uses an override in Python. */
    PyObject *names = PyObject_CallMethod(self, "list_keys", NULL);

    if (names == NULL) {
        return NULL;
    }
    PyObject *iterator = PyObject_GetIter(names);
    Py_DECREF(names);
    return iterator;
}

#define FUNCTION(function) (PyCFunction)(void (*)(void))(function)
#define FLAGS (METH_METHOD | METH_FASTCALL | METH_KEYWORDS)

/* The docstring of Store documents what all methods have in common. */
PyMethodDef dlpy_store_methods[] = {
    {"set", FUNCTION(store_set), FLAGS,
     "set($self, key, value)\n--\n\n" DLPY_DOC_STORE_SET},
    {"get", FUNCTION(store_get), FLAGS,
     "get($self, key, *, timeout=None)\n--\n\n" DLPY_DOC_STORE_GET},
    {"add", FUNCTION(store_add), FLAGS,
     "add($self, key, amount)\n--\n\n" DLPY_DOC_STORE_ADD},
    {"compare_set", FUNCTION(store_compare_set), FLAGS,
     "compare_set($self, key, expected, desired)\n--\n\n" DLPY_DOC_STORE_COMPARE_SET},
    {"delete_key", FUNCTION(store_delete_key), FLAGS,
     "delete_key($self, key)\n--\n\n" DLPY_DOC_STORE_DELETE_KEY},
    {"append", FUNCTION(store_append), FLAGS,
     "append($self, key, value)\n--\n\n" DLPY_DOC_STORE_APPEND},
    {"queue_push", FUNCTION(store_queue_push), FLAGS,
     "queue_push($self, key, value)\n--\n\n" DLPY_DOC_STORE_QUEUE_PUSH},
    {"queue_pop", FUNCTION(store_queue_pop), FLAGS,
     "queue_pop($self, key, block=True, *, "
     "timeout=None)\n--\n\n" DLPY_DOC_STORE_QUEUE_POP},
    {"queue_len", FUNCTION(store_queue_len), FLAGS,
     "queue_len($self, key)\n--\n\n" DLPY_DOC_STORE_QUEUE_LEN},
    {"check", FUNCTION(store_check), FLAGS,
     "check($self, keys)\n--\n\n" DLPY_DOC_STORE_CHECK},
    {"wait", FUNCTION(store_wait), FLAGS,
     "wait($self, keys, timeout=None)\n--\n\n" DLPY_DOC_STORE_WAIT},
    {"num_keys", FUNCTION(store_num_keys), FLAGS,
     "num_keys($self)\n--\n\n" DLPY_DOC_STORE_NUM_KEYS},
    {"list_keys", FUNCTION(store_list_keys), FLAGS,
     "list_keys($self)\n--\n\n" DLPY_DOC_STORE_LIST_KEYS},
    {"multi_get", FUNCTION(store_multi_get), FLAGS,
     "multi_get($self, keys, *, timeout=None)\n--\n\n" DLPY_DOC_STORE_MULTI_GET},
    {"multi_set", FUNCTION(store_multi_set), FLAGS,
     "multi_set($self, keys, values)\n--\n\n" DLPY_DOC_STORE_MULTI_SET},
    {"barrier", FUNCTION(store_barrier), FLAGS,
     "barrier($self, key, world_size, timeout=None)\n--\n\n" DLPY_DOC_STORE_BARRIER},
    {"stats", FUNCTION(store_stats), FLAGS,
     "stats($self)\n--\n\n" DLPY_DOC_STORE_STATS},
    {"has_extended_api", store_has_extended_api, METH_NOARGS,
     "has_extended_api($self)\n--\n\n" DLPY_DOC_STORE_HAS_EXTENDED_API},
    {"clone", store_clone, METH_NOARGS, "clone($self)\n--\n\n" DLPY_DOC_STORE_CLONE},
    {"set_timeout", FUNCTION(store_set_timeout), FLAGS,
     "set_timeout($self, timeout)\n--\n\n" DLPY_DOC_STORE_SET_TIMEOUT},
    {"close", store_close, METH_NOARGS, "close($self)\n--\n\n" DLPY_DOC_STORE_CLOSE},
    {"dict", FUNCTION(store_dict), FLAGS,
     "dict($self, prefix='')\n--\n\n" DLPY_DOC_STORE_DICT},
    {"items", FUNCTION(store_items), FLAGS,
     "items($self, prefix='')\n--\n\n" DLPY_DOC_STORE_ITEMS},
    {"watch", FUNCTION(store_watch), FLAGS,
     "watch($self, prefix='', timeout=None, initial=False, *, "
     "interval=1.0)\n--\n\n" DLPY_DOC_STORE_WATCH},
    {"lock", FUNCTION(store_lock), FLAGS,
     "lock($self, name, timeout=None, *, lease=None)\n--\n\n" DLPY_DOC_STORE_LOCK},
    {"__enter__", store_enter, METH_NOARGS,
     "__enter__($self)\n--\n\n"
     "The store itself."},
    {"__exit__", FUNCTION(store_exit), FLAGS,
     "__exit__($self, exception_type, exception, traceback)\n--\n\n"
     "Closes the store."},
    {"__reduce__", store_reduce, METH_NOARGS,
     "__reduce__($self)\n--\n\n"
     "Returns what pickle and copy need to make another handle of the same data."},
    {NULL, NULL, 0, NULL},
};
