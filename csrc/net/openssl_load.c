/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>

#include "base/library.h"
#include "net/openssl_table.h"

static const char *const sonames[] = {"libssl.so.3", "libssl.so.1.1", "libssl.so",
                                      NULL};

static const dl_library library = {
    .title = "OpenSSL's libssl, which TLS (DISTLITE_TLS) needs,",
    .variable = "DISTLITE_SSL_LIBRARY",
    .sonames = sonames,
    .advice = "install OpenSSL 1.1.1 or newer (Debian: apt install libssl3)",
};

/* The symbols of libcrypto are found through the handle of libssl, which depends on it:
 * so both are of one version, whatever other libcrypto the process has loaded. */
static const dl_symbol symbols[] = {
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_openssl_table, field), false},
    DL_OPENSSL_SYMBOLS(X)
#undef X
};

static dl_openssl_table table;

static dl_status
init_library(void *handle)
{
    if (table.init(DL_OPENSSL_INIT, NULL) != 1) {
        return dl_fail(DL_UNSUPPORTED, "libssl in %s cannot be initialised",
                       dl_library_path(handle));
    }
    return DL_OK;
}

static dl_library_use use = {
    .library = &library,
    .symbols = {symbols, sizeof symbols / sizeof *symbols},
    .table = &table,
    .check = init_library,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

dl_status
dl_openssl_load(const dl_openssl_table **loaded)
{
    DL_TRY(dl_library_load(&use));
    *loaded = &table;
    return DL_OK;
}
