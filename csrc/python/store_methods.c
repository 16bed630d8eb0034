/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The methods of Store.  Those that are requests to the store share one body: a table
 * says which arguments each takes and which member of the request each becomes, and the
 * result follows from the kind of the reply. */
#include "python/store_methods.h"

#include <stdlib.h>

#include "python/docstrings.h"
#include "python/errors.h"
#include "python/value_buffer.h"

#define ARGUMENTS_MAX 3

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
    [DL_OP_GET] = {{"get", 1, {"key"}}, {ROLE_KEY}},
    [DL_OP_ADD] = {{"add", 2, {"key", "amount"}}, {ROLE_KEY, ROLE_NUMBER}},
    [DL_OP_COMPARE_SET] = {{"compare_set", 3, {"key", "expected", "desired"}},
                           {ROLE_KEY, ROLE_EXPECTED, ROLE_VALUE}},
    [DL_OP_DELETE_KEY] = {{"delete_key", 1, {"key"}}, {ROLE_KEY}},
    [DL_OP_APPEND] = {{"append", 2, {"key", "value"}}, {ROLE_KEY, ROLE_VALUE}},
    [DL_OP_CHECK] = {{"check", 1, {"keys"}}, {ROLE_KEYS}},
    [DL_OP_WAIT] = {{"wait", 1, {"keys", "timeout"}}, {ROLE_KEYS, ROLE_TIMEOUT}},
    [DL_OP_NUM_KEYS] = {{"num_keys", 0, {NULL}}, {0}},
    [DL_OP_LIST_KEYS] = {{"list_keys", 0, {NULL}}, {0}},
    [DL_OP_MULTI_GET] = {{"multi_get", 1, {"keys"}}, {ROLE_KEYS}},
    [DL_OP_MULTI_SET] = {{"multi_set", 2, {"keys", "values"}},
                         {ROLE_KEYS, ROLE_VALUES}},
    [DL_OP_QUEUE_PUSH] = {{"queue_push", 2, {"key", "value"}}, {ROLE_KEY, ROLE_VALUE}},
    [DL_OP_QUEUE_POP] = {{"queue_pop", 1, {"key", "block"}}, {ROLE_KEY, ROLE_BLOCK}},
    [DL_OP_QUEUE_LEN] = {{"queue_len", 1, {"key"}}, {ROLE_KEY}},
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
                          method->signature.names[i], taken)
            < 0) {
            release(taken);
            return -1;
        }
    }
    return 0;
}

/* Empties the buffers one by one, so that large values never exist twice. */
static PyObject *
values_to_list(dl_buffer *values, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *value = dlpy_object_from_buffer(&values[i]);
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
        return dlpy_object_from_buffer(reply->values);
    case DL_REPLY_VALUES:
        return values_to_list(reply->values, request->count);
    case DL_REPLY_NAMES:
        return names_to_list(reply);
    default:
        return Py_NewRef(Py_None);
    }
}

static PyObject *
execute(PyTypeObject *defining_class, dl_store *store, const request_arguments *taken,
        dl_store_reply *reply)
{
    dl_status status;

    /* Converting the arguments may have run Python code; the timeout starts here. */
    dl_deadline deadline = dl_deadline_after(taken->timeout);
    Py_BEGIN_ALLOW_THREADS
    status = dl_store_execute(store, &taken->request, reply, deadline);
    Py_END_ALLOW_THREADS
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
        reply.values[i] = dlpy_value_buffer();
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
    bool has_value = dl_request_kinds[taken->request.op].reply != DL_REPLY_NAMES;
    dl_buffer value = has_value ? dlpy_value_buffer() : (dl_buffer){0};
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
#define REQUEST_METHOD(name, op)                             \
    static DLPY_METHOD(name)                                 \
    {                                                        \
        return run(self, defining_class, (op), DLPY_PASSED); \
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

#define METHOD(function) (PyCFunction)(void (*)(void))(function)
#define FLAGS (METH_METHOD | METH_FASTCALL | METH_KEYWORDS)

/* What all methods have in common is documented once, in the docstring of Store. */
PyMethodDef dlpy_store_method_table[] = {
    {"set", METHOD(store_set), FLAGS,
     "set($self, key, value)\n--\n\n" DLPY_DOC_STORE_SET},
    {"get", METHOD(store_get), FLAGS, "get($self, key)\n--\n\n" DLPY_DOC_STORE_GET},
    {"add", METHOD(store_add), FLAGS,
     "add($self, key, amount)\n--\n\n" DLPY_DOC_STORE_ADD},
    {"compare_set", METHOD(store_compare_set), FLAGS,
     "compare_set($self, key, expected, desired)\n--\n\n" DLPY_DOC_STORE_COMPARE_SET},
    {"delete_key", METHOD(store_delete_key), FLAGS,
     "delete_key($self, key)\n--\n\n" DLPY_DOC_STORE_DELETE_KEY},
    {"append", METHOD(store_append), FLAGS,
     "append($self, key, value)\n--\n\n" DLPY_DOC_STORE_APPEND},
    {"queue_push", METHOD(store_queue_push), FLAGS,
     "queue_push($self, key, value)\n--\n\n" DLPY_DOC_STORE_QUEUE_PUSH},
    {"queue_pop", METHOD(store_queue_pop), FLAGS,
     "queue_pop($self, key, block=True)\n--\n\n" DLPY_DOC_STORE_QUEUE_POP},
    {"queue_len", METHOD(store_queue_len), FLAGS,
     "queue_len($self, key)\n--\n\n" DLPY_DOC_STORE_QUEUE_LEN},
    {"check", METHOD(store_check), FLAGS,
     "check($self, keys)\n--\n\n" DLPY_DOC_STORE_CHECK},
    {"wait", METHOD(store_wait), FLAGS,
     "wait($self, keys, timeout=None)\n--\n\n" DLPY_DOC_STORE_WAIT},
    {"num_keys", METHOD(store_num_keys), FLAGS,
     "num_keys($self)\n--\n\n" DLPY_DOC_STORE_NUM_KEYS},
    {"list_keys", METHOD(store_list_keys), FLAGS,
     "list_keys($self)\n--\n\n" DLPY_DOC_STORE_LIST_KEYS},
    {"multi_get", METHOD(store_multi_get), FLAGS,
     "multi_get($self, keys)\n--\n\n" DLPY_DOC_STORE_MULTI_GET},
    {"multi_set", METHOD(store_multi_set), FLAGS,
     "multi_set($self, keys, values)\n--\n\n" DLPY_DOC_STORE_MULTI_SET},
    {"barrier", METHOD(store_barrier), FLAGS,
     "barrier($self, key, world_size, timeout=None)\n--\n\n" DLPY_DOC_STORE_BARRIER},
    {"has_extended_api", METHOD(dlpy_store_has_extended_api), FLAGS,
     "has_extended_api($self)\n--\n\n" DLPY_DOC_STORE_HAS_EXTENDED_API},
    {"clone", METHOD(dlpy_store_clone), FLAGS,
     "clone($self)\n--\n\n" DLPY_DOC_STORE_CLONE},
    {"set_timeout", METHOD(dlpy_store_set_timeout), FLAGS,
     "set_timeout($self, timeout)\n--\n\n" DLPY_DOC_STORE_SET_TIMEOUT},
    {"close", METHOD(dlpy_store_close), FLAGS,
     "close($self)\n--\n\n" DLPY_DOC_STORE_CLOSE},
    {"lock", METHOD(dlpy_store_lock), FLAGS,
     "lock($self, name, timeout=None)\n--\n\n" DLPY_DOC_STORE_LOCK},
    {"__enter__", METHOD(dlpy_store_enter), FLAGS,
     "__enter__($self)\n--\n\n"
     "The store itself."},
    {"__exit__", METHOD(dlpy_store_exit), FLAGS,
     "__exit__($self, exception_type, exception, traceback)\n--\n\n"
     "Closes the store."},
    {"__reduce__", METHOD(dlpy_store_reduce), FLAGS,
     "__reduce__($self)\n--\n\n"
     "Stores cannot be pickled: TypeError."},
    {NULL, NULL, 0, NULL},
};
