/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module functions from which distlite.stores.relay makes its class: a relay is a
 * capsule here. */
#include "store/tcp/relay.h"

#include <string.h>

#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"
#include "python/stores/store_types.h"
#include "store/tcp/tcp_store.h"

#define CAPSULE "distlite.relay"

/* Stopping joins two threads, which end in bounded time. */
static void
stop_relay(PyObject *capsule)
{
    dl_relay *relay = PyCapsule_GetPointer(capsule, CAPSULE);

    Py_BEGIN_ALLOW_THREADS
    dl_relay_stop(relay);
    Py_END_ALLOW_THREADS
}

static int
take_options(const dlpy_state *state, PyObject *const *values,
             dl_relay_options *options)
{
    if (dlpy_host_from(values[0], "host", &options->host) < 0
        || dlpy_port_from(values[1], &options->port) < 0
        || (values[2] != Py_None
            && dlpy_name_from(values[2], "name", &options->name) < 0)
        || (values[4] != Py_None
            && dlpy_name_from(values[4], "tls", &options->tls) < 0)) {
        return -1;
    }
    if (options->port == 0) {
        PyErr_SetString(PyExc_ValueError, "port must be that of the server, not 0");
        return -1;
    }
    if (options->tls != NULL || dl_tcp_store_tls_is_named()) {
        dlpy_load_own_openssl();
    }
    return dlpy_secret_from(state, values[3], &options->secret);
}

static PyObject *
relay_start(PyObject *module, PyObject *const *values)
{
    dlpy_state *state = dlpy_state_of_module(module);
    dl_relay_options options = {0};
    dl_relay *relay = NULL;

    if (take_options(state, values, &options) < 0) {
        return NULL;
    }
    dl_status status = dl_relay_start(&options, &relay);
    dl_secret_unref(options.secret);
    if (status != DL_OK) {
        return dlpy_raise_store(state, status);
    }
    PyObject *capsule = PyCapsule_New(relay, CAPSULE, stop_relay);
    if (capsule == NULL) {
        Py_BEGIN_ALLOW_THREADS
        dl_relay_stop(relay);
        Py_END_ALLOW_THREADS
    }
    return capsule;
}

DLPY_PARSED(relay_start, "_relay_start", 5, "host", "port", "name", "token", "tls")

static PyObject *
relay_name(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const dl_relay *relay = PyCapsule_GetPointer(capsule, CAPSULE);

    return relay == NULL ? NULL : PyUnicode_FromString(dl_relay_name(relay));
}

static PyObject *
relay_is_connected(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const dl_relay *relay = PyCapsule_GetPointer(capsule, CAPSULE);

    return relay == NULL ? NULL : PyBool_FromLong(dl_relay_is_connected(relay));
}

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_relay_start", relay_start_call, DLPY_DOC__RELAY_START),
    {"_relay_name", relay_name, METH_O, DLPY_DOC__RELAY_NAME},
    {"_relay_is_connected", relay_is_connected, METH_O, DLPY_DOC__RELAY_IS_CONNECTED},
    {0},
};

const dlpy_part dlpy_relay_functions = {.functions = functions};
