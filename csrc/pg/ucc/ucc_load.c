/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>

#include "pg/ucc/ucc_backend.h"
#include "pg/ucc/ucc_table.h"

static const char *const sonames[] = {"libucc.so.1", NULL};
static const char *const folders[] = {"libucc/lib", "nvidia/ucc/lib", NULL};
static const char *const homes[] = {"UCC_HOME", "UCC_ROOT", "UCC_DIR", NULL};

static const dl_library library = {
    .title = "UCC",
    .variable = "DISTLITE_UCC_LIBRARY",
    .sonames = sonames,
    .folders = folders,
    .homes = homes,
    .advice = "install UCC with apt install libucc1 (newer Debian and Ubuntu), conda "
              "install -c conda-forge ucc, or from github.com/openucx/ucc",
};

static const dl_symbol symbols[] = {
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_ucc_table, field), false},
    DL_UCC_SYMBOLS(X)
#undef X
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_ucc_table, field), true},
        DL_UCC_NEWER_SYMBOLS(X)
#undef X
};

static dl_ucc_table table;
static bool is_loaded; /* guarded by lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static dl_status
load_locked(void)
{
    dl_symbol_list list = {symbols, sizeof symbols / sizeof *symbols};
    void *handle;

    DL_TRY(dl_library_open(&library, &handle));
    DL_TRY(dl_library_bind(&library, handle, list, &table));
    table.major = 1;
    if (table.version != NULL) {
        table.version(&table.major, &table.minor, &table.patch);
    }
    if (table.major != 1) {
        return dl_fail(DL_UNSUPPORTED, "UCC in %s is %u.%u, but only 1.x is known; %s",
                       dl_library_path(handle), table.major, table.minor,
                       library.advice);
    }
    is_loaded = true;
    return DL_OK;
}

/* A failure is not kept: the next try may find what has been installed meanwhile. */
dl_status
dl_ucc_load(const dl_ucc_table **loaded)
{
    pthread_mutex_lock(&lock);
    dl_status status = is_loaded ? DL_OK : load_locked();
    pthread_mutex_unlock(&lock);
    *loaded = status == DL_OK ? &table : NULL;
    return status;
}

dl_status
dl_ucc_version(int *version)
{
    const dl_ucc_table *ucc;

    DL_TRY(dl_ucc_load(&ucc));
    *version = (int)(ucc->major * 10000 + ucc->minor * 100 + ucc->patch);
    return DL_OK;
}
