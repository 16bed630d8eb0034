/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "python/module/convert.h"
#include "python/module/gil.h"
#include "python/stores/store_types.h"

/* The longest pause between two pops while the name of the queue also has a value, so
 * that waits for the name end at once. */
#define LAST_PAUSE (50 * DL_MILLISECOND)

/* One call from the core into a method of a Python store. */
typedef struct python_call {
    PyGILState_STATE gil;
    bool is_foreign;            /* the thread was unknown to Python before */
    PyObject *object;           /* owned for the duration of the call */
    dl_interrupt_own interrupt; /* the thread's, which is for the core alone */
} python_call;

/* Without a GIL, an object may be on its way to dlpy_python_store_detach(). */
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030e0000
#define ENABLE_TRY_INCREF(object) PyUnstable_EnableTryIncRef(object)
#define TRY_INCREF(object) PyUnstable_TryIncRef(object)
#else
#define ENABLE_TRY_INCREF(object) (void)(object)
#define TRY_INCREF(object) (Py_INCREF(object), true)
#endif

/* Returns a new reference, or NULL if the object is gone. */
static PyObject *
hold_object(dlpy_python_store *self)
{
    dlpy_mutex_lock(&self->lock);
    PyObject *object = self->object;
    bool is_held = object != NULL && TRY_INCREF(object);
    dlpy_mutex_unlock(&self->lock);
    return is_held ? object : NULL;
}

/* May be called on any thread: Python threads keep their thread state, others get one
 * for the duration of the call.  The thread's own check for waits is off meanwhile: what it
 * interrupts in the override would raise an error there, or be taken for one of the
 * store.  Fails if an exception is set already: the core is then returning and only
 * releases resources.  After a failure call_end() must not be called. */
static dl_status
call_begin(dl_store *store, python_call *call)
{
    dlpy_python_store *self = (dlpy_python_store *)store;

    call->is_foreign = PyGILState_GetThisThreadState() == NULL;
    if (call->is_foreign && !dlpy_may_enter()) {
        return dl_fail(DL_CLOSED, "%s: the interpreter has ended", self->kind);
    }
    call->gil = PyGILState_Ensure();
    /* The override may drop the last other reference to its own object. */
    call->object = hold_object(self);
    if (call->object == NULL || PyErr_Occurred()) {
        dl_status status = call->object == NULL ? DL_CLOSED : DL_INTERRUPTED;
        Py_XDECREF(call->object);
        PyGILState_Release(call->gil);
        return dl_fail(status, "%s: the Python object %s", self->kind,
                       status == DL_CLOSED ? "is gone" : "has failed already");
    }
    call->interrupt = dl_interrupt_set_own((dl_interrupt_own){.check = NULL});
    return DL_OK;
}

/* Leaves the exception set for the caller of the core in Python.  Copies its text to
 * the thread's last error for consumers outside Python: a thread of the core, or a
 * group that repeats the cause. */
static dl_status
exception_status(const python_call *call)
{
    PyObject *error = dlpy_error_take();
    PyObject *text = PyObject_Str(error);
    const char *message = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    dl_status status = dl_fail(DL_INTERRUPTED, "%s: %s", Py_TYPE(error)->tp_name,
                               message == NULL ? "no text" : message);
    Py_XDECREF(text);
    dlpy_error_restore(error);
    /* The thread state ends with the call, and the exception with it: no Python code
     * would ever see it. */
    if (call->is_foreign) {
        PyErr_Clear();
    }
    return status;
}

/* Releases the GIL.  If `succeeded` is false, an exception is set. */
static dl_status
call_end(python_call *call, bool succeeded)
{
    dl_status status = succeeded ? DL_OK : exception_status(call);

    (void)dl_interrupt_set_own(call->interrupt);
    Py_DECREF(call->object);
    PyGILState_Release(call->gil);
    return status;
}

/* Creates a new list for every call, as the override may keep or change it. */
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

/* Returns whether the deadline is the store's own timeout: only the methods wait() and
 * barrier() take one. */
static bool
is_own_timeout(dl_store *store, dl_deadline deadline)
{
    int64_t timeout = dl_store_timeout(store);

    return deadline.limit == timeout || (deadline.limit < 0 && timeout < 0);
}

/* A negative timedelta means to wait indefinitely. */
static PyObject *
timedelta_left(dl_deadline deadline)
{
    int64_t left = dl_deadline_left(deadline);

    return dlpy_timedelta_from(left == INT64_MAX ? -DL_SECOND : left);
}

#define ARGUMENTS_MAX \
    (DL_REQUEST_FIELDS_MAX + 2) /* the object, and a flag or timeout */

/* Appends the Python value of one field of the request. */
static void
put_argument(dl_request_field field, const dl_store_request *request,
             PyObject **arguments, size_t *count)
{
    switch (field) {
    case DL_FIELD_I64:
        arguments[(*count)++] = PyLong_FromLongLong(request->number);
        break;
    case DL_FIELD_KEY:
        arguments[(*count)++] = dlpy_text_from(request->key);
        break;
    case DL_FIELD_EXPECTED:
        arguments[(*count)++] = dlpy_object_from(request->expected);
        break;
    case DL_FIELD_VALUE:
        arguments[(*count)++] = dlpy_object_from(request->value);
        break;
    case DL_FIELD_KEYS:
    case DL_FIELD_PAIRS:
        arguments[(*count)++] =
            list_from(request->keys, request->count, dlpy_text_from);
        if (field == DL_FIELD_PAIRS) {
            arguments[(*count)++] =
                list_from(request->values, request->count, dlpy_object_from);
        }
        break;
    case DL_FIELD_COUNT:
    case DL_FIELD_U32:
    case DL_FIELD_END:
        break;
    }
}

/* Appends the arguments that are not fields.  Overrides of wait() need not take a
 * timeout, so it is passed only if it differs from the store's own. */
static void
put_extra(dl_store *store, const dl_store_request *request, dl_deadline deadline,
          PyObject **arguments, size_t *count)
{
    if (request->op == DL_OP_QUEUE_POP) {
        arguments[(*count)++] = PyBool_FromLong(request->is_blocking);
    } else if (request->op == DL_OP_BARRIER
               || (request->op == DL_OP_WAIT && !is_own_timeout(store, deadline))) {
        arguments[(*count)++] = timedelta_left(deadline);
    }
}

static PyObject *
call_method(dl_store *store, const dl_store_request *request, dl_deadline deadline,
            PyObject *object)
{
    const dl_request_kind *kind = &dl_request_kinds[request->op];
    PyObject *arguments[ARGUMENTS_MAX] = {object};
    PyObject *name = PyUnicode_FromString(kind->name);
    bool succeeded = name != NULL;
    PyObject *result = NULL;
    size_t count = 1;

    for (const dl_request_field *field = kind->fields; *field != DL_FIELD_END;
         field++) {
        put_argument(*field, request, arguments, &count);
    }
    put_extra(store, request, deadline, arguments, &count);
    for (size_t i = 1; i < count; i++) {
        succeeded = succeeded && arguments[i] != NULL;
    }
    if (succeeded) {
        result = PyObject_VectorcallMethod(name, arguments, count, NULL);
    }
    for (size_t i = 1; i < count; i++) {
        Py_XDECREF(arguments[i]);
    }
    Py_XDECREF(name);
    return result;
}

/* Accepts str as well, as set() does. */
static bool
take_bytes(PyObject *object, dl_buffer *value)
{
    dlpy_bytes bytes;

    if (dlpy_bytes_from(object, "a value returned by a store", &bytes) < 0) {
        return false;
    }
    dl_status status = dl_buffer_set(value, bytes.bytes);
    dlpy_bytes_release(&bytes);
    if (status != DL_OK) {
        PyErr_NoMemory();
    }
    return status == DL_OK;
}

static bool
take_truth(PyObject *result, int64_t *truth)
{
    int is_true = PyObject_IsTrue(result);

    *truth = is_true > 0;
    return is_true >= 0;
}

/* The core has allocated one value per key, so any other number is an error. */
static bool
take_values(PyObject *result, size_t count, dl_buffer *values)
{
    PyObject *list = PySequence_List(result);
    bool succeeded = list != NULL;

    if (succeeded && (size_t)PyList_GET_SIZE(list) != count) {
        PyErr_Format(PyExc_ValueError, "multi_get() returned %zd values for %zu keys",
                     PyList_GET_SIZE(list), count);
        succeeded = false;
    }
    for (size_t i = 0; succeeded && i < count; i++) {
        succeeded = take_bytes(PyList_GET_ITEM(list, (Py_ssize_t)i), &values[i]);
    }
    Py_XDECREF(list);
    return succeeded;
}

/* Copies the names to a list first: the override may return a view of its own dict,
 * which another thread could change during the loop. */
static bool
take_names(PyObject *result, dl_store_reply *reply)
{
    PyObject *list = PySequence_List(result);
    bool succeeded = list != NULL;
    dlpy_bytes name;

    reply->number = 0;
    while (succeeded && reply->number < PyList_GET_SIZE(list)) {
        succeeded = dlpy_bytes_from(PyList_GET_ITEM(list, reply->number),
                                    "a key returned by a store", &name)
                    == 0;
        if (succeeded) {
            dl_put_bytes(reply->values, name.bytes);
            dlpy_bytes_release(&name);
            reply->number++;
        }
    }
    Py_XDECREF(list);
    if (succeeded && dl_buffer_check(reply->values) != DL_OK) {
        PyErr_NoMemory();
        succeeded = false;
    }
    return succeeded;
}

/* Returns false with an exception set. */
static bool
take_result(PyObject *result, const dl_store_request *request, dl_store_reply *reply)
{
    switch (dl_request_kinds[request->op].reply) {
    case DL_REPLY_ALL_EXIST:
    case DL_REPLY_EXISTED:
        return take_truth(result, &reply->number);
    case DL_REPLY_NUMBER:
        return dlpy_int64_from(result, "what the method returns", &reply->number) == 0;
    case DL_REPLY_VALUE:
    case DL_REPLY_ITEM:
        return take_bytes(result, reply->values);
    case DL_REPLY_VALUES:
        return take_values(result, request->count, reply->values);
    case DL_REPLY_NAMES:
        return take_names(result, reply);
    default:
        return true;
    }
}

/* get() and multi_get() in Python wait as long as they please.  If the deadline is not
 * the store's own, waits for the keys first, so that these methods need not wait. */
static dl_status
wait_first(dl_store *store, const dl_store_request *request, dl_deadline deadline)
{
    size_t count;
    const dl_bytes *keys = dl_request_keys(request, &count);
    bool exist = false;

    if ((request->op != DL_OP_GET && request->op != DL_OP_MULTI_GET)
        || is_own_timeout(store, deadline)) {
        return DL_OK;
    }
    if (deadline.limit != 0) {
        return dl_store_wait(store, keys, count, deadline);
    }
    DL_TRY(dl_store_check(store, keys, count, &exist, deadline));
    return exist ? DL_OK : dl_store_fail_without(store, "", keys, count, deadline);
}

/* Returns whether the exception that is set is that of an empty queue, which is then
 * cleared. */
static bool
take_empty(const python_call *call)
{
    const dlpy_state *state = dlpy_state_of_type(Py_TYPE(call->object));

    if (state == NULL || !PyErr_ExceptionMatches(state->queue_empty_error)) {
        return false;
    }
    PyErr_Clear();
    return true;
}

/* Calls the override once.  If `is_empty` is not NULL, it is set in place of the
 * exception for an empty queue. */
static dl_status
ask_once(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
         dl_deadline deadline, bool *is_empty)
{
    python_call call = {0};

    DL_TRY(call_begin(store, &call));
    PyObject *result = call_method(store, request, deadline, call.object);
    bool succeeded = result != NULL && take_result(result, request, reply);
    Py_XDECREF(result);
    if (!succeeded && is_empty != NULL && take_empty(&call)) {
        *is_empty = true;
        succeeded = true;
    }
    return call_end(&call, succeeded);
}

/* Pops by a deadline that is not the store's own, which overrides of queue_pop() do not
 * take: pops without waiting, and waits for the queue in between.  That wait may end at
 * once although the queue is empty, where a value has the same name. */
static dl_status
pop_by(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
       dl_deadline deadline)
{
    dl_store_request attempt = *request;
    int64_t pause = 0;

    attempt.is_blocking = false;
    for (;;) {
        bool is_empty = false;
        DL_TRY(ask_once(store, &attempt, reply, deadline, &is_empty));
        if (!is_empty) {
            return DL_OK;
        }
        if (dl_deadline_passed(deadline)) {
            return dl_store_fail_timeout("", &request->key, 1, deadline);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, pause)));
        DL_TRY(dl_store_wait(store, &request->key, 1, deadline));
        pause = pause == 0 ? DL_MILLISECOND : pause < LAST_PAUSE ? 2 * pause : pause;
    }
}

/* Returns whether the exception that is set is how wait() says that its time is up,
 * which is then cleared: any one that comes when it is.  Stores raise errors of their
 * own for it.  One that is broken fails check(), too. */
static bool
take_late(dl_deadline deadline)
{
    if (dl_deadline_left(deadline) > DL_MILLISECOND
        || !PyErr_ExceptionMatches(PyExc_Exception)) {
        return false;
    }
    PyErr_Clear();
    return true;
}

/* A wait() whose time is up may have dropped the reply of a distant server, and a
 * caller that waits in slices would never see the keys; check(), if there is one, waits
 * for its reply. */
static dl_status
wait_for_keys(dl_store *store, const dl_store_request *request, dl_deadline deadline)
{
    python_call call = {0};
    bool exist = false;

    DL_TRY(call_begin(store, &call));
    PyObject *result = call_method(store, request, deadline, call.object);
    bool is_late = result == NULL && take_late(deadline);
    bool succeeded = result != NULL || is_late;
    Py_XDECREF(result);
    DL_TRY(call_end(&call, succeeded));
    if (!is_late) {
        return DL_OK;
    }
    dl_status status =
        dl_store_check(store, request->keys, request->count, &exist, deadline);
    if (status != DL_OK && status != DL_UNSUPPORTED) {
        return status;
    }
    return exist ? DL_OK
                 : dl_store_fail_without(store, "", request->keys, request->count,
                                         deadline);
}

static dl_status
python_execute(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
               dl_deadline deadline)
{
    if (request->op == DL_OP_QUEUE_POP && request->is_blocking
        && !is_own_timeout(store, deadline)) {
        return pop_by(store, request, reply, deadline);
    }
    if (request->op == DL_OP_WAIT) {
        return wait_for_keys(store, request, deadline);
    }
    DL_TRY(wait_first(store, request, deadline));
    return ask_once(store, request, reply, deadline, NULL);
}

/* Once the interpreter has ended the reference cannot be dropped any more. */
static void
python_free(dl_store *store)
{
    dlpy_python_store *self = (dlpy_python_store *)store;

    if (self->owns_object
        && (PyGILState_GetThisThreadState() != NULL || dlpy_may_enter())) {
        PyGILState_STATE gil = PyGILState_Ensure();
        Py_CLEAR(self->object);
        PyGILState_Release(gil);
    }
    PyMem_RawFree(self);
}

/* Needs no GIL: a copy holds its object, whose store is fixed. */
static dl_store *
store_below(dl_store *store)
{
    return dlpy_store_made(((dlpy_python_store *)store)->object);
}

/* Returns 1 if the class of `object` overrides `method`, 0 if not, or -1 with an
 * exception set. */
static int
overrides_method(const dlpy_state *state, PyObject *object, const char *method)
{
    PyObject *own = PyObject_GetAttrString((PyObject *)Py_TYPE(object), method);
    PyObject *ours = PyObject_GetAttrString((PyObject *)state->store_type, method);
    int result = own == NULL || ours == NULL ? -1 : own != ours;

    Py_XDECREF(own);
    Py_XDECREF(ours);
    return result;
}

/* Looked up once: overrides belong to the class, which is complete before it has
 * objects.  Calls still go through the object, so an instance attribute may shadow a
 * method. */
static int
find_overrides(const dlpy_state *state, dlpy_python_store *store)
{
    const uint32_t extended = DL_REQUEST(DL_OP_APPEND) | DL_REQUEST(DL_OP_MULTI_GET)
                              | DL_REQUEST(DL_OP_MULTI_SET);
    int overridden = 0;

    store->ops = (dl_store_ops){
        .kind = store->kind,
        .execute = python_execute,
        .free = python_free,
    };
    for (unsigned op = 0; op < DL_OP_COUNT && overridden >= 0; op++) {
        const char *name = dl_request_kinds[op].name;
        /* The core itself makes only requests that torch's stores have, too. */
        bool is_core = name != NULL && op < DL_OP_FIRST_OWN;
        overridden = !is_core ? 0 : overrides_method(state, store->object, name);
        store->ops.requests |= overridden > 0 ? DL_REQUEST(op) : 0;
    }
    store->ops.has_extended_api = (store->ops.requests & extended) == extended;
    return overridden < 0 ? -1 : 0;
}

/* Uses raw memory, because the last reference may be dropped without the GIL. */
dl_store *
dlpy_python_store_new(const dlpy_state *state, PyObject *object)
{
    dlpy_python_store *store = PyMem_RawCalloc(1, sizeof *store);

    if (store == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    store->object = object;
    ENABLE_TRY_INCREF(object);
    PyOS_snprintf(store->kind, sizeof store->kind, "%s", Py_TYPE(object)->tp_name);
    if (find_overrides(state, store) < 0) {
        PyMem_RawFree(store);
        return NULL;
    }
    dl_store_init(&store->base, &store->ops);
    return &store->base;
}

/* Copies the store; the copy has its own operation table. */
static void
copy_store(dlpy_python_store *copy, const dlpy_python_store *own)
{
    *copy = (dlpy_python_store){.ops = own->ops, .object = own->object};
    memcpy(copy->kind, own->kind, sizeof copy->kind);
    copy->ops.kind = copy->kind;
    copy->ops.below = store_below;
    dl_store_init(&copy->base, &copy->ops);
    atomic_init(&copy->base.is_closed, atomic_load(&own->base.is_closed));
}

dl_store *
dlpy_python_store_share(dl_store *own)
{
    dlpy_python_store *shared = PyMem_RawCalloc(1, sizeof *shared);

    if (shared == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    copy_store(shared, (dlpy_python_store *)own);
    Py_INCREF(shared->object);
    shared->owns_object = true;
    return &shared->base;
}

/* Tables are per object; all of them share the same `free` function. */
bool
dlpy_python_store_check(const dl_store *store)
{
    return store->ops->free == python_free;
}

/* Needs the GIL, like every access to `object`. */
void
dlpy_python_store_detach(dl_store *own)
{
    dlpy_python_store *self = (dlpy_python_store *)own;

    dlpy_mutex_lock(&self->lock);
    self->object = NULL;
    dlpy_mutex_unlock(&self->lock);
}

dl_store *
dlpy_python_store_without(dl_store *store, dl_opcode op, dlpy_python_store *base)
{
    if (!dlpy_python_store_check(store)
        || (store->ops->requests & DL_REQUEST(op)) == 0) {
        return store;
    }
    copy_store(base, (dlpy_python_store *)store);
    base->ops.requests &= ~DL_REQUEST(op);
    return &base->base;
}
