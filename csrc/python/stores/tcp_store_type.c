/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TCPStore: its arguments, its properties and its type. */
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"
#include "python/stores/store_types.h"
#include "store/tcp/tcp_store.h"

/* The arguments of TCPStore, in the order of torch's constructor, and then its own. */
enum {
    HOST_NAME,
    PORT,
    WORLD_SIZE,
    IS_MASTER,
    TIMEOUT,
    WAIT_FOR_WORKERS,
    MULTI_TENANT,
    MASTER_LISTEN_FD,
    USE_LIBUV,
    TOKEN,
    JOURNAL,
    JOURNAL_SYNC,
    TLS,
    ARGUMENT_COUNT
};

int
dlpy_port_from(PyObject *object, uint16_t *number)
{
    int64_t port;

    if (dlpy_int64_from(object, "port", &port) < 0) {
        return -1;
    }
    if (port < 0 || port > UINT16_MAX) {
        PyErr_Format(PyExc_ValueError, "port must be in 0..65535, not %lld",
                     (long long)port);
        return -1;
    }
    *number = (uint16_t)port;
    return 0;
}

/* None and negative values both mean that the number is not known. */
static int
take_world_size(PyObject *object, dl_tcp_store_options *options)
{
    if (object == NULL || object == Py_None) {
        options->world_size = -1;
        return 0;
    }
    if (dlpy_int64_from(object, "world_size", &options->world_size) < 0) {
        return -1;
    }
    if (options->world_size == 0) {
        PyErr_SetString(PyExc_ValueError, "TCPStore world size cannot be 0");
        return -1;
    }
    return 0;
}

/* The core owns the descriptor once it is called, even if it fails; until then the
 * caller does. */
static int
take_listen_fd(PyObject *object, dl_tcp_store_options *options)
{
    int64_t fd = -1;

    if (object != NULL && object != Py_None) {
        if (dlpy_int64_from(object, "master_listen_fd", &fd) < 0) {
            return -1;
        }
        if (fd < 0 || fd > INT32_MAX) {
            PyErr_Format(PyExc_ValueError,
                         "master_listen_fd must be an open socket's number, not %lld",
                         (long long)fd);
            return -1;
        }
    }
    options->listen_fd = (int)fd;
    return 0;
}

static int
take_flag(PyObject *object, const char *name, bool otherwise, bool *flag)
{
    *flag = otherwise;
    return object == NULL ? 0 : dlpy_bool_from(object, name, flag);
}

/* Without the argument, the environment may decide. */
static int
default_libuv(bool *use_libuv)
{
    if (dl_environment_flag("USE_LIBUV", dl_tcp_store_has_libuv(), use_libuv)
        != DL_OK) {
        PyErr_SetString(PyExc_ValueError, dl_last_error()->text);
        return -1;
    }
    return 0;
}

/* The environment is read only if use_libuv was left out, so that an invalid variable
 * does not affect programs that pass it. */
static int
take_flags(PyObject **values, dl_tcp_store_options *options)
{
    bool use_libuv = true;

    if (take_flag(values[IS_MASTER], "is_master", false, &options->is_master) < 0
        || take_flag(values[WAIT_FOR_WORKERS], "wait_for_workers", true,
                     &options->wait_for_workers)
               < 0
        || take_flag(values[MULTI_TENANT], "multi_tenant", false,
                     &options->multi_tenant)
               < 0
        || (values[USE_LIBUV] == NULL && default_libuv(&use_libuv) < 0)
        || take_flag(values[USE_LIBUV], "use_libuv", use_libuv, &options->use_libuv)
               < 0) {
        return -1;
    }
    return 0;
}

void
dlpy_load_own_openssl(void)
{
    Py_XDECREF(PyImport_ImportModule("_ssl"));
    PyErr_Clear();
}

int
dlpy_secret_from(const dlpy_state *state, PyObject *object, dl_secret **secret)
{
    bool is_given = object != NULL && object != Py_None;
    dlpy_bytes token = {0};
    dl_status status;

    *secret = NULL;
    if (!is_given && !dl_secret_is_named()) {
        return 0;
    }
    if (is_given && dlpy_bytes_from(object, "token", &token) < 0) {
        return -1;
    }
    dlpy_load_own_openssl();
    status = is_given ? dl_secret_new(token.bytes, secret) : dl_secret_find(secret);
    if (is_given) {
        dlpy_bytes_release(&token);
    }
    return status == DL_OK ? 0 : (dlpy_raise_store(state, status), -1);
}

/* Takes the path of the journal, of which the caller owns `*path`, and its mode. */
static int
take_journal(PyObject *self, PyObject **values, dl_tcp_store_options *options,
             PyObject **path)
{
    PyObject *journal = values[JOURNAL];
    const char *sync = "interval";

    if (values[JOURNAL_SYNC] != NULL
        && dlpy_name_from(values[JOURNAL_SYNC], "journal_sync", &sync) < 0) {
        return -1;
    }
    dl_status status = dl_journal_sync_read(sync, &options->sync);
    if (status != DL_OK) {
        return dlpy_store_finish_init(self, status, NULL);
    }
    if (journal == NULL || journal == Py_None) {
        return 0;
    }
    if (!options->is_master) {
        PyErr_SetString(
            PyExc_ValueError,
            "journal: only the master, which runs the server, has one; pass "
            "is_master=True, or leave it out");
        return -1;
    }
    if (!PyUnicode_FSConverter(journal, path)) {
        return -1;
    }
    options->journal = PyBytes_AS_STRING(*path);
    return 0;
}

/* The core translates the name of the mode, so that it is checked in one place. */
static int
take_tls(PyObject *object, dl_tcp_store_options *options)
{
    if (object != NULL && object != Py_None
        && dlpy_name_from(object, "tls", &options->tls) < 0) {
        return -1;
    }
    if (options->tls != NULL || dl_tcp_store_tls_is_named()) {
        dlpy_load_own_openssl();
    }
    return 0;
}

/* The caller's argument keeps the str alive while the core connects. */
int
dlpy_host_from(PyObject *object, const char *name, const char **host)
{
    if (dlpy_name_from(object, name, host) < 0) {
        return -1;
    }
    const char *colon = strchr(*host, ':');
    if (strchr(*host, '/') != NULL
        || (colon != NULL && strchr(colon + 1, ':') == NULL)) {
        PyErr_Format(PyExc_ValueError,
                     "%s must be a name or an address alone, such as localhost "
                     "or 127.0.0.1, not '%s': the port is an argument of its own "
                     "(MASTER_PORT in the environment)",
                     name, *host);
        return -1;
    }
    return 0;
}

static int
take_options(PyObject **values, dl_tcp_store_options *options)
{
    if (dlpy_host_from(values[HOST_NAME], "host_name", &options->host) < 0
        || dlpy_port_from(values[PORT], &options->port) < 0
        || take_world_size(values[WORLD_SIZE], options) < 0
        || dlpy_timeout_from(values[TIMEOUT], DL_STORE_DEFAULT_TIMEOUT,
                             &options->timeout)
               < 0
        || take_listen_fd(values[MASTER_LISTEN_FD], options) < 0) {
        return -1;
    }
    return take_flags(values, options);
}

static void
describe_connecting(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    const dl_tcp_store_options *options = subject;

    snprintf(text, DL_WAIT_ROW_TEXT, "TCPStore('%.72s', %u)", options->host,
             (unsigned)options->port);
}

/* One deadline bounds the name lookup, the connection and the wait for workers. */
static int
tcp_store_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {
        "TCPStore",
        2,
        {"host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers",
         "multi_tenant", "master_listen_fd", "use_libuv", "token", "journal",
         "journal_sync", "tls"}};
    PyObject *values[ARGUMENT_COUNT];
    dl_tcp_store_options options = {0};
    dl_store *store = NULL;
    dl_waiting waiting;
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
    PyObject *path = NULL; /* owns the bytes of options.journal */
    dl_status status;

    if (state == NULL
        || dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || dlpy_store_refuse_second_init(self) < 0 || take_options(values, &options) < 0
        || take_tls(values[TLS], &options) < 0
        || take_journal(self, values, &options, &path) < 0) {
        return -1;
    }
    if (dlpy_secret_from(state, values[TOKEN], &options.secret) < 0) {
        Py_XDECREF(path);
        return -1;
    }
    /* From here on the core owns the descriptor: nothing may fail in between. */
    dl_deadline deadline = dl_deadline_after(options.timeout);
    dlpy_waiting_enter(state, &waiting, describe_connecting, &options, deadline);
    Py_BEGIN_ALLOW_THREADS
    status = dl_tcp_store_new(&options, deadline, &store);
    Py_END_ALLOW_THREADS
    dl_waiting_end(&waiting);
    dl_secret_unref(options.secret);
    Py_XDECREF(path);
    return dlpy_store_finish_init(self, status, store);
}

static PyObject *
token_of(dl_store *store)
{
    dl_bytes token = dl_secret_own_token(dl_store_secret(store));

    return token.size == 0 ? Py_NewRef(Py_None) : dlpy_object_from(token);
}

static PyObject *
server_of(dl_store *store)
{
    dl_server_identity server = dl_tcp_store_server(store);

    return server.is_distlite
               ? dlpy_object_from((dl_bytes){server.bytes, DL_IDENTITY_SIZE})
               : Py_NewRef(Py_None);
}

#define GETTER(name) PyObject *name(PyObject *self, void *closure)

/* Defines the getter of a property, `value` of `store`. */
#define PROPERTY(name, value)                    \
    static GETTER(name)                          \
    {                                            \
        dl_store *store = dlpy_store_core(self); \
                                                 \
        (void)closure;                           \
        return store == NULL ? NULL : (value);   \
    }

PROPERTY(tcp_store_host, PyUnicode_FromString(dl_tcp_store_host(store)))
PROPERTY(tcp_store_port, PyLong_FromLong(dl_tcp_store_port(store)))
PROPERTY(tcp_store_tls, PyUnicode_FromString(dl_tcp_store_tls(store)))
PROPERTY(tcp_store_uses_libuv, PyBool_FromLong(dl_tcp_store_uses_libuv(store)))
PROPERTY(tcp_store_token, token_of(store))
PROPERTY(tcp_store_server, server_of(store))

static PyObject *
tcp_store_repr(PyObject *self)
{
    dl_store *store = dlpy_store_made(self);
    dl_buffer text = {0};

    if (store == NULL) {
        return dlpy_store_describe_unmade(self);
    }
    dl_tcp_store_describe(store, &text);
    PyObject *result = dl_buffer_check(&text) == DL_OK
                           ? dlpy_text_from(dl_buffer_bytes(&text))
                           : PyErr_NoMemory();
    dl_buffer_fini(&text);
    return result;
}

static PyGetSetDef tcp_store_properties[] = {
    {"host", tcp_store_host, NULL, DLPY_DOC_TCPSTORE_HOST, NULL},
    {"port", tcp_store_port, NULL, DLPY_DOC_TCPSTORE_PORT, NULL},
    {"libuvBackend", tcp_store_uses_libuv, NULL, DLPY_DOC_TCPSTORE_LIBUVBACKEND, NULL},
    {"_tls", tcp_store_tls, NULL, "The mode of TLS, for pickles.", NULL},
    {"_token", tcp_store_token, NULL,
     "The token that was passed, for pickles; None if the environment has it.", NULL},
    {"_server", tcp_store_server, NULL,
     "The identity of the server, for pickles; None if it is torch's.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(
    tcp_store_doc,
    "TCPStore(host_name, port, world_size=None, is_master=False, timeout=None,\n"
    "         wait_for_workers=True, multi_tenant=False, master_listen_fd=None,\n"
    "         use_libuv=True, token=None, journal=None,\n"
    "         journal_sync='interval', tls=None)\n--\n\n" DLPY_DOC_TCPSTORE);

static PyType_Slot tcp_store_slots[] = {
    {Py_tp_doc, (void *)tcp_store_doc},   {Py_tp_new, dlpy_store_alloc},
    {Py_tp_init, tcp_store_init},         {Py_tp_repr, tcp_store_repr},
    {Py_tp_getset, tcp_store_properties}, {0, NULL},
};

static PyType_Spec tcp_store_spec = {
    .name = "distlite.TCPStore",
    .basicsize = sizeof(dlpy_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tcp_store_slots,
};

const dlpy_part dlpy_tcp_store_type = {
    .type = &tcp_store_spec,
    .base = offsetof(dlpy_state, store_type),
    .slot = offsetof(dlpy_state, tcp_store_type),
};
