/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/link_tls.h"

#include <stdlib.h>
#include <string.h>

static bool
is_set(const char *variable)
{
    const char *value = getenv(variable);

    return value != NULL && value[0] != '\0';
}

/* torch knows more transports, and refuses those that it was built without as well. */
static dl_status
fail_transport(const char *wanted)
{
    bool is_known = strcmp(wanted, "UV") == 0 || strcmp(wanted, "IBVERBS") == 0;

    return dl_fail(DL_NETWORK,
                   DL_TRANSPORT_VARIABLE "=%.100s %s; unset the variable, or set it to "
                                         "TCP or TCP_TLS",
                   wanted,
                   is_known ? "is not supported: distlite's network transports are TCP "
                              "and TCP_TLS"
                            : "is not a transport");
}

/* Sets whether TCP_TLS is asked for. */
static dl_status
find_transport(bool *is_tls)
{
    const char *wanted = getenv(DL_TRANSPORT_VARIABLE);

    *is_tls = wanted != NULL && strcmp(wanted, "TCP_TLS") == 0;
    return wanted == NULL || *is_tls || strcmp(wanted, "TCP") == 0
               ? DL_OK
               : fail_transport(wanted);
}

static bool
has_certificates(void)
{
    static const char *const variables[] = {
        "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY",
        "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT",
        "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE",
        "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_PATH",
    };
    bool has_any = false;

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        has_any |= is_set(variables[i]);
    }
    return has_any;
}

static dl_status
find_mode(bool has_secret, dl_tls_mode *mode)
{
    bool is_tls;

    DL_TRY(find_transport(&is_tls));
    if (dl_tls_mode_find(mode) != DL_OK) {
        return dl_fail(DL_NETWORK, "%s", dl_last_error()->text);
    }
    if (!is_tls || *mode != DL_TLS_OFF) {
        return DL_OK;
    }
    if (is_set(DL_TLS_VARIABLE)) {
        return dl_fail(DL_NETWORK, DL_TRANSPORT_VARIABLE
                       "=TCP_TLS and " DL_TLS_VARIABLE
                       "=off contradict each other; unset one of them");
    }
    *mode = has_certificates() || !has_secret ? DL_TLS_CERT : DL_TLS_PSK;
    return DL_OK;
}

dl_status
dl_link_tls_check(void)
{
    dl_tls_mode mode;

    return find_mode(true, &mode);
}

dl_status
dl_link_tls_new(const dl_secret *secret, dl_tls **tls)
{
    dl_tls_mode mode;

    DL_TRY(find_mode(secret != NULL, &mode));
    return dl_tls_new(mode, "link", secret, tls);
}
