/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/openssl.h"

#include <stddef.h>

#include "base/library.h"

static const char *const sonames[] = {"libssl.so.3", "libssl.so.1.1", "libssl.so",
                                      NULL};

static const dl_library library = {
    .title = "OpenSSL's libssl, which a token (DISTLITE_TOKEN) and TLS (DISTLITE_TLS) "
             "need,",
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

dl_openssl_table dl_openssl;

static dl_status
init_library(void *handle)
{
    if (dl_openssl.init(DL_OPENSSL_INIT, NULL) != 1) {
        return dl_fail(DL_UNSUPPORTED, "libssl in %s cannot be initialised",
                       dl_library_path(handle));
    }
    return DL_OK;
}

static dl_library_use use = {
    .library = &library,
    .symbols = {symbols, sizeof symbols / sizeof *symbols},
    .table = &dl_openssl,
    .check = init_library,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

dl_status
dl_openssl_load(void)
{
    return dl_library_load(&use);
}
